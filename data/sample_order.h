// Which samples a run trains on, in which order, without the tokens themselves: a pure function of the number of
// samples in each source, the shares of the sources, shuffle and seed.
//
// Sample n of a run is of the source that the blend says. A source's samples come epoch by epoch: of S samples, the one
// after k others is of epoch k / S and at position k % S there. With shuffle the position goes through a permutation
// drawn from (seed, source, epoch), in which every sample occurs exactly once; without, samples come in the order of
// the files.
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
