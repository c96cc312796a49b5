// The order of a run's samples: a pure function of the sources' numbers of samples, their shares, shuffle and seed.
//
// The blend says which source sample n is of. A source's samples come epoch by epoch: of S samples, the one after k
// others is at position k % S of epoch k / S. With shuffle the position goes through a permutation drawn from (seed,
// source, epoch); without, samples come in the order of the files.
#pragma once

#include <cstdint>
#include <vector>

#include "data/blend.h"

namespace megalith {

struct Sample {
  size_t source;
  int64_t epoch;
  int64_t index;  // in the source, 0 .. S-1
  bool operator==(const Sample&) const = default;
};

class SampleOrder {
 public:
  // sizes: S of each source, at least 1; as many as the blend has.
  SampleOrder(std::vector<int64_t> sizes, Blend blend, bool shuffle, uint64_t seed);

  Sample at(int64_t n) const;

  const std::vector<int64_t>& sizes() const { return sizes_; }
  const Blend& blend() const { return blend_; }
  bool shuffle() const { return shuffle_; }
  uint64_t seed() const { return seed_; }

 private:
  std::vector<int64_t> sizes_;
  Blend blend_;
  bool shuffle_;
  uint64_t seed_;
};

}  // namespace megalith
