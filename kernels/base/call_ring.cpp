#include "kernels/base/call_ring.h"

#include <algorithm>

namespace megalith {

namespace {

// Spreads numbers over all of 64 bits: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t spread(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A free place of the page; where there is none, one that nobody reads: such a group is missed, and nothing breaks.
CallPage::Group& free_place(CallPage& calls) {
  const auto found = std::find_if(calls.groups.begin(), calls.groups.end(), [](const auto& g) { return g.id == 0; });
  if (found != calls.groups.end()) return *found;
  static CallPage::Group nowhere{};
  return nowhere;
}

}  // namespace

const char* name_of(Call call) {
  constexpr const char* names[] = {
      "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast",          "send",
      "recv",       "barrier",        "split",      "connect",    "texts of all ranks", "text of rank 0"};
  const auto i = static_cast<size_t>(call);
  return i < std::size(names) ? names[i] : "a call of another version";
}
static_assert(static_cast<int>(Call::barrier) == static_cast<int>(Transfer::barrier));

uint64_t CallRing::next_id() { return spread(page_.job + ++ids_) | 1; }

CallGroup::CallGroup(CallRing& ring, uint64_t id, const std::string& name, int index, int size)
    : ring_(ring), id_(id), place_(free_place(ring.page())), size_(size) {
  place_.name.fill('\0');
  std::copy_n(name.begin(), std::min(name.size(), place_.name.size() - 1), place_.name.begin());
  place_.index = index;
  place_.size = size;
  place_.begun = 0;
  place_.id.store(id, std::memory_order_release);
}

CallGroup::~CallGroup() { place_.id = 0; }

uint64_t CallGroup::id_of_part(int color) {
  return spread(spread(id_ + static_cast<uint64_t>(++splits_)) + static_cast<uint64_t>(color)) | 1;
}

}  // namespace megalith
