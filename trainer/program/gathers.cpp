#include "trainer/program/gathers.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

namespace megalith {

Program with_gathers(const Plan& plan, const Program& uses, bool fp8) {
  constexpr int32_t nowhere = Instruction::none;
  const auto is_use = [](const Instruction& i) { return i.op == Instruction::Op::await_gather; };
  Program list;
  if (fp8 && plan.casts_weights()) list.push_back({.op = Instruction::Op::cast});
  if (!plan.gathers()) {
    std::copy_if(uses.begin(), uses.end(), std::back_inserter(list), [&](const auto& i) { return !is_use(i); });
    return list;
  }
  std::vector<int32_t> slot_of(plan.units.size(), nowhere), own = slot_of;
  std::set<int32_t> on_their_way;
  int32_t num_own = 0, num_sharing = 0;
  for (size_t u = 0; u < plan.units.size(); u++)
    if (plan.units[u].keep_gathered)
      own[u] = num_own++;
    else
      num_sharing++;
  std::vector<int32_t> shared(static_cast<size_t>(std::min<int64_t>(num_sharing, plan.live_units)));
  std::iota(shared.begin(), shared.end(), num_own);  // the next one to use comes first

  const auto gather = [&](int32_t unit) {
    int32_t& slot = slot_of[static_cast<size_t>(unit)];
    if (slot != nowhere) return;
    slot = own[static_cast<size_t>(unit)];
    if (slot == nowhere) {
      const int32_t taken = shared.front();
      std::replace(slot_of.begin(), slot_of.end(), taken, nowhere);
      std::rotate(shared.begin(), shared.begin() + 1, shared.end());
      slot = taken;
    }
    on_their_way.insert(unit);
    const bool in_8_bits = fp8 && plan.units[static_cast<size_t>(unit)].fp8 > 0;
    list.push_back({.op = Instruction::Op::gather, .fp8 = in_8_bits, .unit = unit, .slot = slot});
  };
  for (const Instruction& use : uses) {
    if (!is_use(use)) continue;
    if (own[static_cast<size_t>(use.unit)] == nowhere) break;
    gather(use.unit);
  }
  for (auto at = uses.begin(); at != uses.end(); ++at) {
    if (!is_use(*at)) {
      list.push_back(*at);
      continue;
    }
    gather(at->unit);
    const int32_t slot = slot_of[static_cast<size_t>(at->unit)];
    if (on_their_way.erase(at->unit))
      list.push_back({.op = Instruction::Op::await_gather, .unit = at->unit, .slot = slot});
    if (const auto turn = std::find(shared.begin(), shared.end(), slot); turn != shared.end())
      std::rotate(turn, turn + 1, shared.end());
    const auto next =
        std::find_if(at + 1, uses.end(), [&](const Instruction& i) { return is_use(i) && i.unit != at->unit; });
    if (next != uses.end()) gather(next->unit);
  }
  return list;
}

}  // namespace megalith
