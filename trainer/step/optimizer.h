// The optimizer: AdamW over the shards of all units, and the decision whether a step updates them. Its state is picked
// up by name, so that checkpoints need not know which optimizer wrote it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/adamw.h"
#include "kernels/decide_update.h"
#include "trainer/parallel/unit.h"

namespace megalith {

class Optimizer {
 public:
  // Moments in the optimizer arena, uninitialised, of each unit where its master is. Those on the host are updated on
  // the device in pieces, at two desks, so that one is copied while another is updated.
  Optimizer(const Config& config, const std::vector<Unit>& units, Memory& memory);

  // As before the first update. Gradients are used up.
  void initialize(Stream& s, const std::vector<Unit>& units);

  // One update of every unit from its finished gradient, or none of any, as decide_update (decide_update.h) makes of
  // `sums`, which are those of all ranks. The learning rate is that of `step`, counted from 0.
  void update(Stream& s, const std::vector<Unit>& units, int64_t step, Tensor sums);
  // (UpdateState::numel) f64, the same on every rank: what was decided.
  Tensor decision() const { return decision_; }
  // What the next step's gradients have to be multiplied by, as in BatchContext.
  Tensor loss_scale() const;

  // What later decisions depend on.
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

  static constexpr std::array<const char*, 2> state_paths = {"moments/first", "moments/second"};
  // State tensors by path, one (S) f32 or bf16 for each unit, laid out as the unit's master.
  struct State {
    std::string path;  // "moments/first"
    std::vector<Tensor> by_unit;
  };
  const std::vector<State>& state() const { return state_; }

 private:
  // What an update of a unit reads and writes beside its gradient.
  struct Operands {
    Tensor master, first, second, working;
  };
  // Of a unit on the host, elements of its shard.
  struct Piece {
    size_t unit;
    Interval part;
  };
  struct Desk {
    Operands memory;
    std::array<Pending, 3> coming{};
    std::array<Pending, 4> going{};
  };
  void make_desks(const std::vector<Unit>& units, Memory& memory);
  // The parameters of one step.
  struct Update {
    AdamW adamw;
    Rounding rounding;
  };
  void update(Stream& s, const Unit& unit, Interval part, const Operands& operands, Update with) const;
  Operands at_desk(size_t piece) const;
  void fetch(Stream& s, const std::vector<Unit>& units, size_t piece);
  void update_at_desk(Stream& s, const Unit& unit, size_t piece, const Update& with);
  void put_away(Stream& s, const Unit& unit, size_t piece);

  OptimizerConfig config_;
  bool stochastic_;  // rounding
  uint64_t seed_;
  UpdateRules rules_;
  std::vector<State> state_;  // first moments, second moments
  Tensor decision_;
  std::vector<Piece> pieces_;
  std::vector<Desk> desks_;  // which pieces take in turn: two, or fewer
};

}  // namespace megalith
