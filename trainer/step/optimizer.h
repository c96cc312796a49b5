// The optimizer: a rule (update_rule.h) over the shards of all units, and the decision whether a step updates them. It
// executes the instructions of the update (trainer/program/update.h). Its state is identified by name, so that
// checkpoints need not know which optimizer wrote it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/parallel/unit.h"
#include "trainer/program/program.h"
#include "trainer/step/update_rule.h"

namespace megalith {

class Optimizer {
 public:
  // Allocates state in the optimizer arena, uninitialised, for each unit where its master is, and the staging buffers
  // that `needs` counts. `plan` and `units` must outlive it.
  Optimizer(const Config& config, const Plan& plan, const std::vector<Unit>& units, const Needs& needs, Memory& memory);

  // Sets the state before the first update. Gradients are used up.
  void initialize(Stream& s);

  // Decides how `step`, counted from 0, uses the gradients, from the sums of all ranks: decide_update.h. Its learning
  // rate applies to the updates that follow.
  void decide(Stream& s, int64_t step, Tensor sums, bool counts);
  // Executes fetch_state, await_state, update and put_state, and the instructions of momentum, of the step decided
  // last. An update of matrices finds their directions in the place of their gradients.
  void obey(Stream& s, const Instruction& i);
  // (UpdateState::numel) f64, the same on every rank: the decision.
  Tensor decision() const { return decision_; }
  // Returns the factor of the next step's gradients, as in BatchContext.
  Tensor loss_scale() const;

  // The part of the history on which later decisions depend.
  struct UpdateCounts {
    int64_t updates = 0;          // made
    int64_t skipped = 0;          // skipped steps in a row
    std::vector<double> norms{};  // of the last updates, the oldest first; at most UpdateState::window
    // In fp16.
    double loss_scale = 0;   // 0: the initial scale
    int64_t overflows = 0;   // since the scale rose
    int64_t good_steps = 0;  // updates since the scale changed or an overflow
  };
  // Waits for the work launched so far.
  UpdateCounts update_counts(Stream& s) const;
  void restore(Stream& s, const UpdateCounts& counts);

  // State tensors by path, one f32 or bf16 for each unit, of the elements of its shard that have such state; empty for
  // frozen units.
  struct StateTensors {
    std::string path;  // "moments/first"
    bool of_matrices = false;
    std::vector<Interval> elements{};  // elements of the unit
    std::vector<Tensor> by_unit{};
  };
  const std::vector<StateTensors>& state() const { return state_; }

 private:
  // Master weights and state of a part of a unit, on the device for its update, each at the front.
  struct Staging {
    Tensor master;
    std::vector<Tensor> state;
    Tensor working;  // empty unless the working copy is on the host
    std::vector<Pending> copies{};
  };
  // A part of a unit where it is updated. `elements` are of the unit, and each tensor holds its own of them.
  struct UpdatedPart {
    struct Held {
      Tensor tensor;
      Interval elements{};
      Tensor at(Interval here) const;  // an empty tensor if none is held
    };
    const Unit& unit;
    Interval elements;
    Held master, working, gradient;
    std::vector<Held> state;
  };
  UpdatedPart part_of(const Instruction& i) const;
  Interval held(size_t state, const Instruction& i) const;  // the part's, in elements of the unit
  void fetch(Stream& s, const Instruction& i);
  void put(Stream& s, const Instruction& i);
  void momentum(Stream& s, const UpdatedPart& part) const;
  void update(Stream& s, const UpdatedPart& part) const;
  void update_matrices(Stream& s, const UpdatedPart& part) const;
  // Calls update(elements, rounding) for runs of one parameter each that together cover `within`.
  template <class Update>
  void by_draws(const Unit& unit, const PlacedParam& param, Interval within, Update update) const;
  UpdateRule::Elements elements(const UpdatedPart& part, Interval here, bool decay) const;

  const Plan& plan_;
  const std::vector<Unit>& units_;
  std::unique_ptr<UpdateRule> rule_;
  OptimizerConfig config_;
  bool stochastic_;  // rounding
  uint64_t seed_;
  LossScaling loss_scaling_;
  int64_t most_skipped_;
  std::vector<StateTensors> state_;  // by the rule's names
  Tensor decision_;
  std::vector<Staging> staging_;
  // Of the step decided last.
  double learning_rate_ = 0, muon_learning_rate_ = 0;
  uint64_t rounding_key_ = 0;
};

}  // namespace megalith
