#include "data/samples/permutation.h"

#include <bit>

#include "kernels/system/check.h"
#include "kernels/system/mix.h"

namespace megalith {

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch) : size_(static_cast<uint64_t>(size)) {
  CHECK(size >= 1, "a permutation of {} elements", size);
  const int bits = std::bit_width(size_ - 1);
  low_bits_ = bits / 2;
  low_mask_ = (uint64_t{1} << low_bits_) - 1;
  high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
  uint64_t state = mix_next(mix_next(seed) ^ epoch);
  for (uint64_t& key : keys_) key = state = mix_next(state);
}

uint64_t Permutation::pass(uint64_t value) const {
  uint64_t low = value & low_mask_, high = value >> low_bits_;
  for (int round = 0; round < num_rounds; round += 2) {
    high ^= mix_next(low ^ keys_[static_cast<size_t>(round)]) & high_mask_;
    low ^= mix_next(high ^ keys_[static_cast<size_t>(round) + 1]) & low_mask_;
  }
  return high << low_bits_ | low;
}

int64_t Permutation::operator()(int64_t i) const {
  uint64_t value = static_cast<uint64_t>(i);
  CHECK(value < size_, "element {} of a permutation of {}", i, size_);
  do value = pass(value);
  while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace megalith
