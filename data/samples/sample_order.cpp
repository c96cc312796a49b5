#include "data/samples/sample_order.h"

#include "data/samples/permutation.h"
#include "kernels/system/check.h"

namespace megalith {

SampleOrder::SampleOrder(std::vector<int64_t> sizes, Blend blend, bool shuffle, uint64_t seed, int64_t first,
                         std::vector<SourceBegin> begins)
    : sizes_(std::move(sizes)),
      blend_(std::move(blend)),
      shuffle_(shuffle),
      seed_(seed),
      first_(first),
      begins_(std::move(begins)) {
  CHECK(sizes_.size() == blend_.shares().size(), "an order of {} sources with {} shares", sizes_.size(),
        blend_.shares().size());
  for (const int64_t size : sizes_) CHECK(size >= 1, "a source of {} samples", size);
  for (size_t i = begins_.size(); i < sizes_.size(); i++) begins_.push_back({.key = i});
  for (size_t i = 0; i < sizes_.size(); i++) {
    const SourceBegin& b = begins_[i];
    const int64_t most = b.rest > 0 ? b.rest : sizes_[i];
    CHECK(first_ >= 0 && b.epoch >= 0 && b.rest >= 0 && b.taken >= 0 && b.taken <= most,
          "source {} of an order begins in epoch {} after {} of {} samples", i, b.epoch, b.taken, most);
  }
}

Sample SampleOrder::at(int64_t n) const {
  CHECK(n >= first_, "sample {} of an order that begins with sample {}", n, first_);
  const auto [source, before] = blend_.at(n - first_);
  const SourceBegin& begin = begins_[source];
  const int64_t size = sizes_[source];
  int64_t position = begin.taken + before;
  if (position < begin.rest)
    return {source, begin.epoch, index_at(position, begin.rest, shuffle_, seed_, begin.key, begin.epoch), true};
  int64_t epoch = begin.epoch;
  if (begin.rest > 0) {
    position -= begin.rest;
    epoch++;
  }
  epoch += position / size;
  return {source, epoch, index_at(position % size, size, shuffle_, seed_, begin.key, epoch)};
}

double SampleOrder::epochs(size_t source, int64_t n) const {
  const SourceBegin& begin = begins_[source];
  const auto share = [](int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
  const int64_t taken = begin.taken + this->taken(source, n);
  const auto epoch = static_cast<double>(begin.epoch);
  if (begin.rest == 0) return epoch + share(taken, sizes_[source]);
  return taken < begin.rest ? epoch + share(taken, begin.rest) : epoch + 1 + share(taken - begin.rest, sizes_[source]);
}

int64_t index_at(int64_t position, int64_t size, bool shuffle, uint64_t seed, uint64_t key, int64_t epoch) {
  if (!shuffle) return position;
  // Sources of equal size get different permutations.
  return Permutation(size, seed + key * uint64_t{0x9e3779b97f4a7c15}, static_cast<uint64_t>(epoch))(position);
}

}  // namespace megalith
