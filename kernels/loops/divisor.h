// Division of indices by a number that the host knows: a product, where a GPU's division of 64 bits takes dozens of
// instructions. (Method: Granlund and Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994.)
#pragma once

#include <cstdint>

#include "kernels/system/check.h"

namespace megalith {

__extension__ using Unsigned128 = unsigned __int128;

class Divisor {
 public:
  // For i in [0, most]. Error: by is not positive, or by * most does not fit into 63 bits.
  Divisor(int64_t by, int64_t most) : by_(by) {
    CHECK(by > 0 && most >= 0 && (static_cast<Unsigned128>(by) * static_cast<Unsigned128>(most)) >> 63 == 0,
          "indices up to {} are divided by {}", most, by);
    inverse_ = ~(uint64_t{1} << 63) / static_cast<uint64_t>(by) + 1;
  }
  constexpr int64_t value() const { return by_; }
  constexpr int64_t quotient(int64_t i) const {
    return static_cast<int64_t>(
        static_cast<uint64_t>(static_cast<Unsigned128>(static_cast<uint64_t>(i) * 2) * inverse_ >> 64));
  }
  constexpr int64_t remainder(int64_t i) const { return i - quotient(i) * by_; }

 private:
  int64_t by_;
  uint64_t inverse_ = 0;  // 2^63 / by, rounded up
};

}  // namespace megalith
