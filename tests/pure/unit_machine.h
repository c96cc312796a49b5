// What the units of one rank go through, beside the rows of program_laws.h: which microbatches and ranks are in their
// gradients, and how far they are updated.
#pragma once

#include <algorithm>

#include "tests/pure/program_laws.h"
#include "trainer/layout/matrices.h"

namespace megalith::test {

class UnitMachine {
 public:
  using Places = std::map<int32_t, Place>;

  // `place`: the instruction's, if it names one, before it moves.
  void step(const Plan& plan, const Instruction& i, Place* place, const Places& gradients) {
    if (i.unit != Instruction::none && i.op != Op::await_gather)
      expect(plan.trains(static_cast<size_t>(i.unit)), "a gradient or an update of what is frozen");
    switch (i.op) {
      case Op::zero:
        if (!place) own_[i.unit] = {.state = i.all ? state::there : state::unwritten};
        return;
      case Op::scatter:
        expect(i.add == own_.contains(i.unit), "added to nothing, or written over");
        if (!i.add) own_[i.unit] = {.state = state::there};
        return;
      case Op::relay: return expect(plan.relay, "nothing to relay");
      case Op::collect: return collect(plan, i, *place);
      case Op::sum_copies:
        for (const auto& [at, slot] : gradients)
          expect(slot.state == state::empty || slot.unit != i.unit, "summed before it is complete");
        expect(summed_.insert(i.unit).second, "summed twice");
        summing_ = true;
        return;
      case Op::share_sums:
        expect(plan.reduce_dtype != DType::f32 && summed_.contains(i.unit), "nothing to share");
        expect(shared_.insert(i.unit).second, "shared twice");
        return expect(shared_ == summed_, "the parts of two units are under way");
      case Op::sum_tensor:
        expect(plan.mesh.data == 1 || awaited_.contains(i.unit), "summed too early");
        expect(tensor_summed_.insert(i.unit).second, "summed twice");
        summing_ = true;
        return;
      case Op::await_sums:
        expect(std::exchange(summing_, false), "no sums to await");
        expect(plan.reduce_dtype == DType::f32 || shared_ == summed_, "sums that were not shared");
        awaited_ = summed_;
        return;
      case Op::sum_tied:
        expect(
            !plan.splits_tied() || is_complete(plan, plan.head_share(), own_[as_number(plan.tied)].microbatches.size()),
            "the head's share of the tied table is not finished");
        return expect(!summing_ && !std::exchange(tied_, true), "the tied table is summed too early or twice");
      default: return update(plan, i);
    }
  }

  // products: whether they add; none: there are none in the instruction.
  void add(const Plan& plan, size_t unit, int64_t microbatch, std::optional<bool> products, Places& gradients) {
    const auto u = static_cast<int32_t>(unit);
    const auto takes = [&](const auto& p) {
      return p.second.unit == u && (p.second.state & (state::there | state::unwritten));
    };
    const auto slot = std::find_if(gradients.begin(), gradients.end(), takes);
    const bool whole = plan.mesh.shard == 1, found = whole ? own_.contains(u) : slot != gradients.end();
    expect(found, plan.unit(unit).name + " has no gradient to add to");
    Place& place = whole ? own_[u] : slot->second;
    const bool unwritten = std::exchange(place.state, state::there) == state::unwritten;
    expect(products || !unwritten, "added to what was not zeroed");
    expect(products.value_or(true) == !unwritten || !products,
           "products add to what was not written, or write over what is needed");
    if (!plan.is_layer(unit)) return void(place.microbatches.insert(microbatch));
    expect(place.microbatches.empty() || microbatch >= *place.microbatches.rbegin(),
           "a microbatch is added after a later one");
    expect(place.microbatches.insert(microbatch).second, "a gradient twice");
  }

  // The first half of a backward pass: products write in the second.
  void add_first_half(const Plan& plan, const Instruction& i, const Places& gradients) {
    const auto unit = static_cast<size_t>(i.unit);
    expect(i.apart == (plan.trains(unit) && scatters_each_microbatch(plan, unit)), "gradients in the wrong place");
    if (!plan.trains(unit)) return;
    const auto is_there = [&](const auto& p) {
      return p.second.unit == i.unit && (p.second.state & (state::there | state::unwritten));
    };
    expect(i.apart || (plan.mesh.shard == 1 ? own_.contains(i.unit) : std::ranges::any_of(gradients, is_there)),
           plan.units[unit].name + " has no gradient to add to");
    std::set<int64_t>& halves = halves_[i.unit];
    expect(halves.empty() || i.microbatch > *halves.rbegin(), "a first half after a later one");
    halves.insert(i.microbatch);
  }
  void check_second_half(const Plan& plan, const Instruction& i) {
    expect(i.apart == scatters_each_microbatch(plan, static_cast<size_t>(i.unit)), "gradients in the wrong place");
    expect(halves_[i.unit].contains(i.microbatch), "a second half before its first");
  }

  void check_end(const Plan& plan, int64_t microbatches) const {
    for (size_t u = 0; u < plan.units.size(); u++) {
      const std::string& name = plan.units[u].name;
      if (!plan.trains(u)) continue;
      expect(is_finished(plan, u, microbatches), name + " has no finished gradient");
      const auto updated = updated_.find(static_cast<int32_t>(u));
      expect(updated != updated_.end() && updated->second == plan.units[u].shard.size(), name + " is not updated");
    }
    expect(tied_ == plan.sums_tied(), "the tied table is not summed");
  }
  // True once all microbatches and all ranks are in the unit's gradient.
  bool is_finished(const Plan& plan, size_t u, int64_t microbatches) const {
    return is_complete(plan, u, static_cast<size_t>(microbatches)) && (u != plan.tied || tied_ == plan.sums_tied());
  }
  bool is_summing() const { return summing_; }

 private:
  static bool scatters_each_microbatch(const Plan& plan, size_t unit) {
    return plan.mesh.shard > 1 && !plan.unit(unit).reduce_once;
  }
  bool is_complete(const Plan& plan, size_t u, size_t microbatches) const {
    const auto unit = static_cast<int32_t>(u);
    const auto own = own_.find(unit);
    return own != own_.end() && own->second.microbatches.size() == microbatches && !summing_ &&
           summed_.contains(unit) == (plan.mesh.data > 1) &&
           tensor_summed_.contains(unit) == is_shared_by_tensor_ranks(plan.unit(u));
  }
  static bool is_shared_by_tensor_ranks(const UnitPlan& unit) { return !unit.partial_here().empty(); }

  void collect(const Plan& plan, const Instruction& i, Place& place) {
    expect((place.state == state::relayed) == plan.relay, "collected before it was relayed");
    std::set<int64_t>& own = own_[i.unit].microbatches;
    expect(i.add != own.empty(), "collected over what is needed, or added to nothing");
    for (int64_t m : std::exchange(place.microbatches, {})) {
      expect(own.empty() || m >= *own.rbegin(), "a microbatch is added after a later one");
      expect(own.insert(m).second, "a microbatch counts twice");
    }
  }

  void update(const Plan& plan, const Instruction& i) {
    const auto is_on_host = [&] { return plan.units[static_cast<size_t>(i.unit)].optimizer_on_host; };
    switch (i.op) {
      case Op::norm: return expect(normed_.insert(i.unit).second, "a unit counts twice in the norm");
      case Op::sum_norms:
        return expect(
            static_cast<int64_t>(normed_.size()) == std::ranges::count(plan.units, false, &UnitPlan::frozen) &&
                !std::exchange(norms_summed_, true),
            "units are missing in the norm, or it is summed twice");
      case Op::decide:
        return expect(norms_summed_ && !std::exchange(decided_, true), "decided without the norm, or twice");
      case Op::fetch_state:
      case Op::fetch_momentum: return expect(is_on_host(), "fetched what is on the device");
      case Op::momentum: {
        expect(decided_, "momentum before the decision");
        expect((i.slot != Instruction::none) == is_on_host(), "momentum where the state is not");
        const UnitPlan& unit = plan.units[static_cast<size_t>(i.unit)];
        const Interval all = intersect(unit.matrices, unit.shard);
        int64_t& done = momentum_.try_emplace(i.unit, all.begin - unit.shard.begin).first->second;
        expect(i.part.begin == done, "momentum twice, or elements are left out");
        done = i.part.end;
        return;
      }
      case Op::send_momentum:
        for (const size_t u : round(plan, i).units) expect(has_momentum(plan, u), "sent before the momentum is there");
        return;
      case Op::await_directions:
        for (const size_t u : round(plan, i).units)
          expect(directed_.insert(static_cast<int32_t>(u)).second, "directions twice");
        return;
      case Op::update:
        expect(decided_, "updated before the decision");
        expect(plan.units[static_cast<size_t>(i.unit)].matrices.size() == 0 || directed_.contains(i.unit),
               "updated before its directions are there");
        expect((i.slot != Instruction::none) == is_on_host(), "updated where the state is not");
        expect(i.part.begin == std::exchange(updated_[i.unit], i.part.end), "elements are updated twice or left out");
        return;
      default: return;
    }
  }

  static Round round(const Plan& plan, const Instruction& i) {
    return rounds_of(plan).at(static_cast<size_t>(i.round));
  }
  bool has_momentum(const Plan& plan, size_t u) const {
    const UnitPlan& unit = plan.units[u];
    const Interval all = intersect(unit.matrices, unit.shard);
    const auto done = momentum_.find(static_cast<int32_t>(u));
    return all.size() == 0 || (done != momentum_.end() && done->second == all.end - unit.shard.begin);
  }

  std::map<int32_t, Place> own_;                                 // by unit: its finished gradient
  std::map<int32_t, std::set<int64_t>> halves_;                  // by unit: microbatches whose first half is done
  std::set<int32_t> summed_, shared_, awaited_, tensor_summed_;  // units
  bool summing_ = false, tied_ = false;
  std::set<int32_t> normed_;  // units
  bool norms_summed_ = false, decided_ = false;
  std::map<int32_t, int64_t> updated_;   // by unit: elements of its shard, from the first on
  std::map<int32_t, int64_t> momentum_;  // by unit: those whose momentum is there
  std::set<int32_t> directed_;           // units
};

}  // namespace megalith::test
