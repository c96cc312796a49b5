// A run that shows what it computes: every tensor of a step that two layouts can be compared by, under names that every
// layout uses (tensors_of_step in difference.h), as the pieces that are on this rank, in f32. It trains like any other,
// from the config's weights; nothing is written to disk.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/piece.h"
#include "data/loader.h"
#include "trainer/communication/transport.h"
#include "trainer/step/trainer.h"

namespace megalith {

// What a rank shows of one tensor in one step: the values of the pieces, one behind the other.
struct Shown {
  std::vector<Piece> pieces;
  std::vector<float> values;
};

// 1 is added to the middle element of this tensor in this step, before it is shown.
struct Fault {
  int64_t step = -1;  // 0: before the first; -1: none
  std::string name;
};

class ObservedRun {
 public:
  // `fault` is a test of whoever looks.
  ObservedRun(const Config& config, Fault fault) : config_(config), fault_(std::move(fault)) {}
  ObservedRun(const ObservedRun&) = delete;  // the stage knows where it is

  // Collective, and apart, so that several runs are known to fit before any takes its memory. Then the initial weights
  // are shown. The transport is for tensors of `where` and outlives the run.
  void plan(const Session& session);
  void start(const Session& session, World where, const Transport& transport);
  const MemorySizes& memory() const { return memory_; }  // once planned

  const Config& config() const { return config_; }

  // Update number `step`, counted from 1, on that batch of `data` or, without, on made-up tokens.
  void step(int64_t step, const Loader* data);

  // What this rank showed of a tensor since the step before, if anything.
  const std::vector<Piece>& pieces(const std::string& name) { return shown_[name].pieces; }
  // The same with its values, once.
  Shown take(const std::string& name);

  // Other weights for the pieces shown last. What was gathered of the old ones is stale since the update, and stays
  // that: a layout that counts on it is to be found out.
  void set_weights(const std::string& name, std::span<const float> values);
  void weights_set();

 private:
  void show(const Piece& piece, Tensor data);
  void show_scalar(const std::string& name, double value);
  // Puts the fault into values of its tensor; where, if it is among them.
  const float* spoil(const Piece& piece, std::vector<float>& values) const;
  void keep(const Piece& piece, const std::vector<float>& values);
  void show_gradients();
  void show_weights();

  Config config_;
  Fault fault_;
  Plan plan_;
  MemorySizes memory_{};
  std::unique_ptr<Communicator> world_;
  std::optional<Runtime> runtime_;
  std::optional<Trainer> trainer_;
  int64_t step_ = 0;
  std::map<std::string, Shown> shown_;
  std::map<std::string, std::vector<Tensor>> weights_;  // memory of the pieces
};

}  // namespace megalith
