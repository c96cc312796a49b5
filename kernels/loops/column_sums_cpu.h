// out[c] += sum over rows of x[n, c]: the gradient of a bias.
#pragma once

#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

// Rows are summed in blocks of this size, then blocks in order.
constexpr int64_t column_sum_rows = 64;

// Threads divide the columns, so their number does not change the sums.
template <class T>
void column_sums(float* out, const T* x, int64_t N, int64_t C) {
  constexpr int64_t strip = 64, block_rows = column_sum_rows;
  parallel_for((C + strip - 1) / strip, strip * N, [=](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; s++) {
      const int64_t first = s * strip, width = C - first < strip ? C - first : strip;
      for (int64_t row = 0; row < N; row += block_rows) {
        const int64_t last = row + block_rows < N ? row + block_rows : N;
        float sum[strip] = {};
        for (int64_t n = row; n < last; n++)
#pragma omp simd
          for (int64_t c = 0; c < width; c++) sum[c] += get(x[n * C + first + c]);
#pragma omp simd
        for (int64_t c = 0; c < width; c++) out[first + c] += sum[c];
      }
    }
  });
}

}  // namespace megalith::cpu
