#include "tests/simt/block_order.h"

#include <algorithm>

namespace megalith::simt {

void BlockOrder::release(uintptr_t flag, int32_t value, const Actor& a) {
  Release made{.value = value, .block = a.block, .before = *std::ranges::min_element(*a.knows), .known = {}};
  if (knows_ == a.block)
    for (const auto& [block, all] : known_)
      for (const Known& k : all)
        if (k.to(a)) made.known[block] = std::max(made.known[block], k.before);
  std::vector<Release>& all = released_[flag];
  if (!all.empty() && all.back().block < a.first) all.clear();
  all.push_back(std::move(made));
}

int32_t BlockOrder::await(uintptr_t flag, int32_t found, int32_t at_least, const Actor& a) {
  if (knows_ != a.block) known_.clear();
  knows_ = a.block;
  for (const Release& one : released_[flag]) {
    if (one.block < a.first || one.value < at_least) continue;
    known_[one.block].push_back({one.before, a.warp, clocks.now()});
    for (const auto& [block, before] : one.known) known_[block].push_back({before, a.warp, clocks.now()});
    return one.value;
  }
  return found;
}

bool BlockOrder::is_known(uint32_t block, uint32_t time, const Actor& a) const {
  if (knows_ != a.block) return false;
  const auto at = known_.find(block);
  return at != known_.end() &&
         std::any_of(at->second.begin(), at->second.end(), [&](const Known& k) { return time < k.before && k.to(a); });
}

}  // namespace megalith::simt
