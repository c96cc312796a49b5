// Counts values that are not finite: infinities and NaN. Integers are finite.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/tensor/tensor.h"

namespace megalith {

namespace detail {
// A float is not finite if all bits of its exponent are 1.
template <class Bits>
int64_t count_exponents(const void* values, int64_t n, Bits exponent) {
  // Small enough for a counter as wide as a value, so that each value of a vector has a counter.
  constexpr int64_t some = sizeof(Bits) == 1 ? 255 : int64_t{1} << 14;
  int64_t count = 0;
  for (int64_t begin = 0; begin < n; begin += some) {
    const int64_t end = std::min(n, begin + some);
    Bits found = 0;
#pragma omp simd reduction(+ : found)
    for (int64_t i = begin; i < end; i++) {
      Bits bits;
      std::memcpy(&bits, static_cast<const char*>(values) + i * int64_t{sizeof bits}, sizeof bits);
      found = static_cast<Bits>(found + ((bits & exponent) == exponent));
    }
    count += static_cast<int64_t>(found);
  }
  return count;
}
}  // namespace detail

// Returns how many of n values in host memory are not finite.
inline int64_t count_not_finite(const void* values, DType dtype, int64_t n) {
  switch (dtype) {
    case DType::f32: return detail::count_exponents<uint32_t>(values, n, 0x7f800000u);
    case DType::bf16: return detail::count_exponents<uint16_t>(values, n, 0x7f80u);
    case DType::f16: return detail::count_exponents<uint16_t>(values, n, 0x7c00u);
    case DType::f64: return detail::count_exponents<uint64_t>(values, n, 0x7ff0000000000000u);
    case DType::e4m3: return detail::count_exponents<uint8_t>(values, n, uint8_t{0x7f});  // which has no infinity
    case DType::e5m2: return detail::count_exponents<uint8_t>(values, n, uint8_t{0x7c});
    default: return 0;
  }
}

}  // namespace megalith
