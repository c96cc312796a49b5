// A pseudo-random permutation of 0 .. size-1, a pure function of (size, seed, epoch) that takes no memory. A Feistel
// network permutes the smallest power of two that holds `size`; values outside go through it again (cycle walking:
// Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), on average less than twice.
#pragma once

#include <array>
#include <cstdint>

namespace megalith {

class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);
  int64_t operator()(int64_t i) const;  // 0 <= i < size

 private:
  static constexpr int num_rounds = 12;

  uint64_t pass(uint64_t value) const;

  uint64_t size_;
  int low_bits_;  // the halves differ by at most one bit
  uint64_t low_mask_, high_mask_;
  std::array<uint64_t, num_rounds> keys_;
};

}  // namespace megalith
