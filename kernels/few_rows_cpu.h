// y (M, N) = x (M, K) w^T + b for few rows x, as in generation token by token: each weight is read once and used M
// times, so memory is the limit. A row and output has sixteen sums, added at the end, whatever M is and however threads
// divide the outputs: a row's bits do not depend on the other rows.
#pragma once

#include <cstdint>

#include "kernels/loops_cpu.h"
#include "kernels/tile_gemm_cpu.h"

namespace megalith::cpu {

// The library's GEMM is faster beyond this.
constexpr int64_t few_rows = 8;

inline void load_wide(Vector& to, const float* from) { to = *reinterpret_cast<const Vector*>(from); }
template <class E>
inline void load_wide(Vector& to, const E* from) {
  float wide[lanes];
#pragma omp simd
  for (int64_t i = 0; i < lanes; i++) wide[i] = get(from[i]);
  load_wide(to, wide);
}

inline float sum_of_lanes(const Vector& v) {
  float sum[lanes];
  for (int64_t i = 0; i < lanes; i++) sum[i] = v[i];
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; i++) sum[i] += sum[i + half];
  return sum[0];
}

// Computes outputs [0, Outputs) of rows [0, Rows).
template <int Rows, int Outputs, class In, class Out>
inline void few_rows_block(Out* y, int64_t N, const In* x, const In* w, const In* b, int64_t K) {
  Vector sum[Rows][Outputs] = {};
  int64_t k = 0;
  for (; k + lanes <= K; k += lanes) {
    Vector weight[Outputs];
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; o++) load_wide(weight[o], w + o * K + k);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; r++) {
      Vector value;
      load_wide(value, x + r * K + k);
#pragma GCC unroll 4
      for (int o = 0; o < Outputs; o++) sum[r][o] += value * weight[o];
    }
  }
  for (int r = 0; r < Rows; r++)
    for (int o = 0; o < Outputs; o++) {
      float total = sum_of_lanes(sum[r][o]);
      for (int64_t rest = k; rest < K; rest++) total += get(x[r * K + rest]) * get(w[o * K + rest]);
      put(y[r * N + o], b != nullptr ? total + get(b[o]) : total);
    }
}

template <int Outputs, class In, class Out>
inline void few_rows_outputs(Out* y, int64_t N, const In* x, const In* w, const In* b, int64_t M, int64_t K) {
  int64_t m = 0;
  for (; m + 4 <= M; m += 4) few_rows_block<4, Outputs>(y + m * N, N, x + m * K, w, b, K);
  for (; m < M; m++) few_rows_block<1, Outputs>(y + m * N, N, x + m * K, w, b, K);
}

template <class In, class Out>
void multiply_few_rows(Out* y, const In* x, const In* w, const In* b, int64_t M, int64_t N, int64_t K) {
  constexpr int64_t strip = 4;
  parallel_for((N + strip - 1) / strip, strip * M * K, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin * strip; n < std::min(end * strip, N); n += strip) {
      const In* bias = b != nullptr ? b + n : nullptr;
      if (n + strip <= N)
        few_rows_outputs<strip>(y + n, N, x, w + n * K, bias, M, K);
      else
        for (int64_t i = 0; n + i < N; i++)
          few_rows_outputs<1>(y + n + i, N, x, w + (n + i) * K, bias != nullptr ? bias + i : nullptr, M, K);
    }
  });
}

}  // namespace megalith::cpu
