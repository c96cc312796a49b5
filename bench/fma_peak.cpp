#include "bench/fma_peak.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "kernels/linear/gemm_cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace megalith::bench {

namespace {

// Runs `rounds` of independent operations, as many as two units with a latency of four to six cycles take; the sums
// tend to 2. Returns their number.
using Work = double (*)(int64_t rounds);

#if defined(__x86_64__)
__attribute__((target("avx512f"))) double wide(int64_t rounds) {
  constexpr int n = 16, lanes = 16;
  const __m512 half = _mm512_set1_ps(0.5F), one = _mm512_set1_ps(1);
  __m512 sums[n];
  for (__m512& sum : sums) sum = one;
  for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) sums[i] = _mm512_fmadd_ps(sums[i], half, one);
  for (__m512& sum : sums) asm volatile("" : : "v"(sum));
  return 2.0 * n * lanes * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) double narrow(int64_t rounds) {
  constexpr int n = 12, lanes = 8;  // 16 registers
  const __m256 half = _mm256_set1_ps(0.5F), one = _mm256_set1_ps(1);
  __m256 sums[n];
  for (__m256& sum : sums) sum = one;
  for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
    for (int i = 0; i < n; i++) sums[i] = _mm256_fmadd_ps(sums[i], half, one);
  for (__m256& sum : sums) asm volatile("" : : "x"(sum));
  return 2.0 * n * lanes * static_cast<double>(rounds);
}

Work work_of_ops() {
  const std::string_view vectors = cpu::vectors_of_ops();
  return vectors == "AVX-512" ? wide : vectors == "AVX2" ? narrow : nullptr;
}
#else
Work work_of_ops() { return nullptr; }
#endif

}  // namespace

double fma_peak() {
  const Work work = work_of_ops();
  if (!work) return 0;
  double best = 0;
  for (int attempt = 0; attempt < 10; attempt++) {
    double operations = 0;
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel reduction(+ : operations)
    operations += work(int64_t{1} << 21);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, operations / seconds.count());
  }
  return best;
}

}  // namespace megalith::bench
