// The largest magnitude of a tensor (Largest).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/loops/loops_cpu.h"
#include "kernels/tensor/largest.h"

namespace megalith::cpu {

// Magnitudes are compared by their bits, among which a NaN is larger than infinity.
template <class T>
uint32_t largest_bits(const T* x, int64_t begin, int64_t end) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = begin; i < end; i++) largest = std::max(largest, std::bit_cast<uint32_t>(get(x[i])) & 0x7fffffffu);
  return largest;
}

inline void raise_largest(const Largest& to, const Tensor& y) {
  if (to.amax.empty()) return;
  std::atomic<uint32_t> largest = 0;
  with_compute_type(y.dtype(), [&](auto tag) {
    const auto* values = y.data<decltype(tag)>();
    parallel_for(to.rows * y.cols(), 1, [&](int64_t begin, int64_t end) {
      const uint32_t here = largest_bits(values, begin, end);
      uint32_t before = largest;
      while (before < here && !largest.compare_exchange_weak(before, here)) continue;
    });
  });
  constexpr uint32_t infinite = 0x7f800000u;
  float& amax = *to.amax.data<float>();
  amax = std::max(amax, std::bit_cast<float>(std::min(largest.load(), infinite)));
}

}  // namespace megalith::cpu
