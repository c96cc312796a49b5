#include "data/sample_order.h"

#include "data/permutation.h"
#include "kernels/system/check.h"

namespace megalith {

SampleOrder::SampleOrder(std::vector<int64_t> sizes, Blend blend, bool shuffle, uint64_t seed)
    : sizes_(std::move(sizes)), blend_(std::move(blend)), shuffle_(shuffle), seed_(seed) {
  CHECK(sizes_.size() == blend_.shares().size(), "an order of {} sources with {} shares", sizes_.size(),
        blend_.shares().size());
  for (const int64_t size : sizes_) CHECK(size >= 1, "a source of {} samples", size);
}

Sample SampleOrder::at(int64_t n) const {
  const auto [source, before] = blend_.at(n);
  const int64_t size = sizes_[source], epoch = before / size, position = before % size;
  if (!shuffle_) return {source, epoch, position};
  // Sources of equal size get different permutations.
  const uint64_t seed = seed_ + source * uint64_t{0x9e3779b97f4a7c15};
  return {source, epoch, Permutation(size, seed, static_cast<uint64_t>(epoch))(position)};
}

}  // namespace megalith
