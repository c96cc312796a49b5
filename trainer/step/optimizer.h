// The optimizer: a rule (update_rule.h) over the shards of all units, and the decision whether a step updates them. It
// obeys the instructions of the update (trainer/program/update.h). Its state is picked up by name, so that checkpoints
// need not know which optimizer wrote it.
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
  // State in the optimizer arena, uninitialised, of each unit where its master is, and staging buffers as `needs` has
  // them. `plan` and `units` must outlive it.
  Optimizer(const Config& config, const Plan& plan, const std::vector<Unit>& units, const Needs& needs, Memory& memory);

  // As before the first update. Gradients are used up.
  void initialize(Stream& s);

  // Decides what `step`, counted from 0, does with the gradients, from the sums of all ranks: decide_update.h. Its
  // learning rate is that of the updates that follow.
  void decide(Stream& s, int64_t step, Tensor sums, bool counts);
  // fetch_state, await_state, update and put_state, and those of momentum, of the step that was decided last. An update
  // of matrices finds their directions where their gradients were.
  void obey(Stream& s, const Instruction& i);
  // (UpdateState::numel) f64, the same on every rank: what was decided.
  Tensor decision() const { return decision_; }
  // Returns the factor of the next step's gradients, as in BatchContext.
  Tensor loss_scale() const;

  // Later decisions depend on this.
  struct UpdateCounts {
    int64_t updates = 0;          // made
    int64_t skipped = 0;          // steps in a row
    std::vector<double> norms{};  // of the last updates, the oldest first; UpdateState::window at most
    // In fp16.
    double loss_scale = 0;   // 0: as at the start
    int64_t overflows = 0;   // since it rose
    int64_t good_steps = 0;  // updates since it changed or an overflow
  };
  // Waits for the work launched so far.
  UpdateCounts update_counts(Stream& s) const;
  void restore(Stream& s, const UpdateCounts& counts);

  // State tensors by path, one f32 or bf16 for each unit, of those elements of its shard that have such state: none
  // where it is frozen.
  struct StateTensors {
    std::string path;  // "moments/first"
    bool of_matrices = false;
    std::vector<Interval> elements{};  // of the unit
    std::vector<Tensor> by_unit{};
  };
  const std::vector<StateTensors>& state() const { return state_; }

 private:
  // Master weights and state of a part of a unit that are on the device for its update, each at the front.
  struct Staging {
    Tensor master;
    std::vector<Tensor> state;
    Tensor working;  // empty unless the working copy is on the host
    std::vector<Pending> copies{};
  };
  // A part of a unit where it is updated. `elements` are of the unit, and each tensor has its own of them.
  struct UpdatedPart {
    struct Held {
      Tensor tensor;
      Interval elements{};
      Tensor at(Interval here) const;  // an empty tensor where none is held
    };
    const Unit& unit;
    Interval elements;
    Held master, working, gradient;
    std::vector<Held> state;
  };
  UpdatedPart part_of(const Instruction& i) const;
  Interval held(size_t state, const Instruction& i) const;  // of the part, elements of the unit
  void fetch(Stream& s, const Instruction& i);
  void put(Stream& s, const Instruction& i);
  void momentum(Stream& s, const UpdatedPart& part) const;
  void update(Stream& s, const UpdatedPart& part) const;
  void update_matrices(Stream& s, const UpdatedPart& part) const;
  // Calls update(elements, rounding) for runs of one parameter that together are `within` it.
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
  std::vector<StateTensors> state_;  // as the rule names them
  Tensor decision_;
  std::vector<Staging> staging_;
  // These are of the step that was decided last.
  double learning_rate_ = 0, muon_learning_rate_ = 0;
  uint64_t rounding_key_ = 0;
};

}  // namespace megalith
