// The optimizer: a rule (update_rule.h) over the shards of all units, and the decision whether a step updates them. It
// obeys the instructions of the update (trainer/parallel/update.h). Its state is picked up by name, so that checkpoints
// need not know which optimizer wrote it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/parallel/program.h"
#include "trainer/parallel/unit.h"
#include "trainer/step/update_rule.h"

namespace megalith {

class Optimizer {
 public:
  // State in the optimizer arena, uninitialised, of each unit where its master is, and staging buffers as `needs` has
  // them. `units` must outlive it.
  Optimizer(const Config& config, const std::vector<Unit>& units, const Needs& needs, Memory& memory);

  // As before the first update. Gradients are used up.
  void initialize(Stream& s);

  // Decides what `step`, counted from 0, does with the gradients, from the sums of all ranks: decide_update.h. Its
  // learning rate is that of the updates that follow.
  void decide(Stream& s, int64_t step, Tensor sums);
  // fetch_state, await_state, update and put_state, of the step that was decided last.
  void obey(Stream& s, const Instruction& i);
  // (UpdateState::numel) f64, the same on every rank: what was decided.
  Tensor decision() const { return decision_; }
  // Returns the factor of the next step's gradients, as in BatchContext.
  Tensor loss_scale() const;

  // Later decisions depend on this.
  struct History {
    int64_t updates = 0;          // made
    int64_t skipped = 0;          // steps in a row
    std::vector<double> norms{};  // of the last updates, the oldest first; UpdateState::window at most
    // In fp16.
    double loss_scale = 0;   // 0: as at the start
    int64_t overflows = 0;   // since it rose
    int64_t good_steps = 0;  // updates since it changed or an overflow
  };
  // Waits for the work launched so far.
  History history(Stream& s) const;
  void restore(Stream& s, const History& history);

  // State tensors by path, one (S) f32 or bf16 for each unit, laid out as the unit's master; empty where it is frozen.
  struct State {
    std::string path;  // "moments/first"
    std::vector<Tensor> by_unit;
  };
  const std::vector<State>& state() const { return state_; }

 private:
  // Master weights and state of a part of a unit that are on the device for its update.
  struct Staging {
    Tensor master;
    std::vector<Tensor> state;
    Tensor working;  // empty unless the working copy is on the host
    std::vector<Pending> copies{};
  };
  Staging front(const Staging& buffer, int64_t numel) const;
  void fetch(Stream& s, const Instruction& i);
  void put(Stream& s, const Instruction& i);
  void update(Stream& s, const Unit& unit, Interval part, const UpdateRule::Elements& all) const;

  const std::vector<Unit>& units_;
  std::unique_ptr<UpdateRule> rule_;
  OptimizerConfig config_;
  bool stochastic_;  // rounding
  uint64_t seed_;
  LossScaling loss_scaling_;
  int64_t most_skipped_;
  std::vector<State> state_;  // as the rule names them
  Tensor decision_;
  std::vector<Staging> staging_;
  // These are of the step that was decided last.
  double learning_rate_ = 0;
  uint64_t rounding_key_ = 0;
};

}  // namespace megalith
