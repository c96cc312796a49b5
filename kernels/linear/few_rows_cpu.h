// y (M, N) = x (M, K) w^T + b for few rows x, as in generation token by token. Each weight is read once and used M
// times, so memory bandwidth is the limit. Each row and output has a vector of sums, added at the end, whatever M is
// and however threads divide the outputs: a row's bits do not depend on the other rows.
#pragma once

#include <cstdint>

#include "kernels/loops/loops_cpu.h"
#include "kernels/loops/vectors_cpu.h"

namespace megalith::cpu {

// With more rows the library's GEMM is faster.
constexpr int64_t few_rows = 8;

// Computes outputs [0, Outputs) of rows [0, Rows).
template <int Rows, int Outputs, class In, class Out>
inline void few_rows_block(Out* y, int64_t N, const In* x, const In* w, const In* b, int64_t K) {
  Vector sum[Rows][Outputs] = {};
  int64_t k = 0;
  for (; k + vector_floats <= K; k += vector_floats) {
    Vector weight[Outputs];
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; o++) weight[o] = load_wide(w + o * K + k);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; r++) {
      const Vector value = load_wide(x + r * K + k);
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
  constexpr int rows = vector_registers == 32 ? 4 : 2;  // 4 x 4 or 2 x 4 sums, 4 vectors of weights and one of x
  int64_t m = 0;
  for (; m + rows <= M; m += rows) few_rows_block<rows, Outputs>(y + m * N, N, x + m * K, w, b, K);
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
