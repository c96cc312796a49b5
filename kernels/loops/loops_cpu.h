// Shared by all CPU ops: a loop split over OpenMP's threads, and the element types. Storage is f32, bf16, f16
// or 8 bits, arithmetic f32; the bits depend neither on the number of threads nor on addresses (except in native bf16
// GEMM: gemm_cpu.h).
#pragma once

#include <omp.h>

#include <bit>
#include <cstdint>

#include "kernels/loops/vectors_cpu.h"
#include "kernels/tensor/tensor.h"

namespace megalith::cpu {

// With fewer element operations than this, a fork costs more than it saves.
constexpr int64_t fork_threshold = 16384;

// Compiled once: inlined twice, the serial and the parallel copy may order their sums differently.
template <class F>
[[gnu::noipa]] void run_range(F& f, int64_t begin, int64_t end) {
  f(begin, end);
}

// Calls f(begin, end) on disjoint ranges that cover [0, n): one for each thread, or a single range if n * work, the
// number of element operations, is small. f must not throw, and must do the same for any split.
template <class F>
void parallel_for(int64_t n, int64_t work, F&& f) {
  if (n <= 1 || n * work < fork_threshold || omp_get_max_threads() == 1) {
    if (n > 0) run_range(f, 0, n);
    return;
  }
  // Always use the whole team: libgomp ends and restarts threads when the team's size changes.
#pragma omp parallel
  {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t begin = n * thread / threads, end = n * (thread + 1) / threads;
    if (begin < end) run_range(f, begin, end);
  }
}

// Elements as f32. 16-bit types are copied by their bits: copies of a struct prevent vectorization.
inline float get(const float& from) { return from; }
inline float get(const bfloat16& from) { return std::bit_cast<float>(static_cast<uint32_t>(from.bits) << 16); }
inline float get(const float16& from) { return float16::value_of(from.bits); }
inline float get(const float8_e4m3& from) { return float8_e4m3::value_of(from.bits); }
inline float get(const float8_e5m2& from) { return float8_e5m2::value_of(from.bits); }
inline void put(float& to, float value) { to = value; }
inline void put(float8_e4m3& to, float value) { to.bits = float8_e4m3::bits_of(value); }
inline void put(float8_e5m2& to, float value) { to.bits = float8_e5m2::bits_of(value); }
inline void put(bfloat16& to, float value) { to.bits = bfloat16(value).bits; }
inline void put(float16& to, float value) { to.bits = float16::bits_of(value); }

// A vector of elements as f32.
inline Vector load_wide(const float* from) { return load(from); }
inline Vector load_wide(const bfloat16* from) {
  return std::bit_cast<Vector>(__builtin_convertvector(load_16_bits(from), BitVector) << 16);
}
inline Vector load_wide(const float16* from) {
#if defined(__F16C__) && !defined(__AVX512F__)
  using Halves [[gnu::vector_size(16)]] = short;
  return __builtin_ia32_vcvtph2ps256(std::bit_cast<Halves>(load_16_bits(from)));
#else
  float wide[vector_floats];
#pragma omp simd
  for (int64_t i = 0; i < vector_floats; i++) wide[i] = get(from[i]);
  return load(wide);
#endif
}

}  // namespace megalith::cpu
