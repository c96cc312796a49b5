// The order of a run's samples: a pure function of the sources' numbers of samples, their shares, shuffle and seed, and
// the position at which each source begins.
//
// The blend decides the source of each sample. A source's samples come epoch by epoch: of S samples, the one after k
// others is at position k % S of epoch k / S. With shuffle the position goes through a permutation drawn from (seed,
// the source's key, epoch); without, samples come in the order of the files.
//
// A run whose data has changed continues with another order, in which each source begins where it was
// (source_course.h): after some samples of an epoch or, if its samples are cut differently now, with the rest of an
// epoch, which has its own samples.
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/blend.h"

namespace megalith {

// Where a source begins in an order.
struct SourceBegin {
  uint64_t key = 0;   // identifies the source, whatever its place in the list
  int64_t epoch = 0;  // current epoch
  int64_t taken = 0;  // samples already taken of this epoch, or of its rest
  int64_t rest = 0;   // samples in the rest of this epoch; 0: the epoch is whole
  bool operator==(const SourceBegin&) const = default;
};

struct Sample {
  size_t source;
  int64_t epoch;
  int64_t index;         // in the source, 0 .. S-1, or in the rest of an epoch
  bool of_rest = false;  // true if it belongs to the rest with which the source begins
  bool operator==(const Sample&) const = default;
};

class SampleOrder {
 public:
  // sizes: S of each source, at least 1, one for each source of the blend. `first`: the run's first sample in this
  // order. `begins`: where each source begins; by default source i has key i and begins at 0.
  SampleOrder(std::vector<int64_t> sizes, Blend blend, bool shuffle, uint64_t seed, int64_t first = 0,
              std::vector<SourceBegin> begins = {});

  // n: the run's sample, at least first().
  Sample at(int64_t n) const;
  // Returns how many epochs of a source the run's first n samples complete; of the rest of an epoch, the share of its
  // samples counts.
  double epochs(size_t source, int64_t n) const;
  // Returns how many samples of a source come in [first(), n) of the run.
  int64_t taken(size_t source, int64_t n) const { return blend_.count(source, n - first_); }

  const std::vector<int64_t>& sizes() const { return sizes_; }
  const Blend& blend() const { return blend_; }
  bool shuffle() const { return shuffle_; }
  uint64_t seed() const { return seed_; }
  int64_t first() const { return first_; }
  const std::vector<SourceBegin>& begins() const { return begins_; }

 private:
  std::vector<int64_t> sizes_;
  Blend blend_;
  bool shuffle_;
  uint64_t seed_;
  int64_t first_;
  std::vector<SourceBegin> begins_;
};

// Returns the index of the sample at a position of an epoch of `size` samples, or of its rest.
int64_t index_at(int64_t position, int64_t size, bool shuffle, uint64_t seed, uint64_t key, int64_t epoch);

}  // namespace megalith
