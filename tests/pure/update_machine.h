// The part of the machine (program_machine.h) that runs one rank's update: what its norm, its decision and its staging
// buffers hold, and how far each unit is updated.
#pragma once

#include <map>
#include <set>
#include <string>

#include "trainer/parallel/program.h"

namespace megalith::test {

using Op = Instruction::Op;

// A fault is thrown as words.
inline void expect(bool good, const std::string& fault) {
  if (!good) throw fault;
}

class UpdateMachine {
 public:
  void step(const Plan& plan, const Instruction& i) {
    switch (i.op) {
      case Op::norm: return expect(normed_.insert(i.unit).second, "a unit counts twice in the norm");
      case Op::sum_norms:
        expect(normed_.size() == plan.units.size() && !norms_summed_,
               "units are missing in the norm, or it is summed twice");
        norms_summed_ = true;
        return;
      case Op::decide:
        expect(norms_summed_ && !decided_, "decided without the norm, or twice");
        decided_ = true;
        return;
      case Op::update: return update(plan, i);
      default: return stage(plan, i);
    }
  }

  void check_end(const Plan& plan) const {
    for (size_t u = 0; u < plan.units.size(); u++) {
      const auto updated = updated_.find(static_cast<int32_t>(u));
      expect(updated != updated_.end() && updated->second == plan.units[u].shard.size(),
             plan.units[u].name + " is not updated");
    }
    for (const auto& [at, buffer] : staging_)
      expect(buffer.unit == Instruction::none && !buffer.on_its_way, "state is not back on the host");
  }

 private:
  // A staging buffer for optimizer state.
  struct Buffer {
    int32_t unit = Instruction::none;
    Interval part{};
    bool updated = false, on_its_way = false;
  };
  static bool is_on_host(const Plan& plan, const Instruction& i) {
    return plan.units[static_cast<size_t>(i.unit)].optimizer_on_host;
  }

  void update(const Plan& plan, const Instruction& i) {
    const bool staged = i.slot != Instruction::none;
    expect(decided_, "updated before the decision");
    expect(staged == is_on_host(plan, i), "updated where the state is not");
    expect(i.part.begin == updated_[i.unit], "elements are updated twice or left out");
    updated_[i.unit] = i.part.end;
    if (!staged) return;
    Buffer& buffer = staging_[i.slot];
    expect(buffer.unit == i.unit && buffer.part == i.part && !buffer.on_its_way, "updated before the state is there");
    buffer.updated = true;
  }

  void stage(const Plan& plan, const Instruction& i) {
    Buffer& buffer = staging_[i.slot];
    switch (i.op) {
      case Op::fetch_state:
        expect(is_on_host(plan, i), "fetched what is on the device");
        expect(buffer.unit == Instruction::none, "fetched over state that is needed");
        buffer = {.unit = i.unit, .part = i.part, .updated = false, .on_its_way = true};
        return;
      case Op::await_state:
        expect(buffer.on_its_way, "no copy to await");
        buffer.on_its_way = false;
        return;
      case Op::put_state:
        expect(buffer.unit == i.unit && buffer.part == i.part && buffer.updated, "what is put back was not updated");
        buffer = {.unit = Instruction::none, .part = {}, .updated = false, .on_its_way = true};
        return;
      default: throw std::string("an instruction that is none of the update");
    }
  }

  std::set<int32_t> normed_;  // units
  bool norms_summed_ = false, decided_ = false;
  std::map<int32_t, Buffer> staging_;   // by slot
  std::map<int32_t, int64_t> updated_;  // by unit: elements of its shard, from the first on
};

}  // namespace megalith::test
