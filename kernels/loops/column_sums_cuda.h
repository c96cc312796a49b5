// Sums over rows in two launches and a fixed order: first each block of an op's kernel writes a row of C partial sums
// to the workspace, then finish_column_sums adds the rows.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

namespace column_sums {
constexpr int strip = 32, lines = 16;
}

// Returns the number of blocks for a kernel in which each block writes `floats` partial sums: two, or `times` as many,
// for each of the 132 SMs of H100 and H200, on every card, so that the sums do not depend on the card. Fewer if the
// workspace or the work is small.
inline unsigned partial_blocks(int64_t work, int64_t floats, int64_t times = 1) {
  const int64_t most_blocks = workspace_bytes / (floats * static_cast<int64_t>(sizeof(float)));
  CHECK(most_blocks > 0, "partial sums of {} floats do not fit into the workspace of {} bytes", floats,
        workspace_bytes);
  return static_cast<unsigned>(std::min<int64_t>({work, most_blocks, 264 * times}));
}

// The columns of partial belong to first, second and third, `width` each: first[c] += the sum over rows of
// partial[row][c], and so on; null: not needed. Launch with ceil_div(C, strip) blocks of strip * lines threads.
template <class = void>
__global__ void __launch_bounds__(column_sums::strip* column_sums::lines)
    finish_column_sums_kernel(float* first, float* second, float* third, int64_t width, const float* partial,
                              int64_t rows, int64_t C) {
  using column_sums::strip, column_sums::lines;
  __shared__ float sums[lines][strip];
  const int column = static_cast<int>(threadIdx.x) % strip, line = static_cast<int>(threadIdx.x) / strip;
  const int64_t c = int64_t{blockIdx.x} * strip + column;
  float sum = 0;
  if (c < C) {
#pragma unroll 8
    for (int64_t row = line; row < rows; row += lines) sum += partial[row * C + c];
  }
  sums[line][column] = sum;
  sync_threads();
  if (line != 0 || c >= C) return;
  for (int i = 1; i < lines; i++) sum += sums[i][column];
  float* to = c < width ? first : c < 2 * width ? second : third;
  if (to) to[c % width] += sum;
}

// Adds column sums of the workspace's `rows` rows to each tensor of `out`, whose columns are next to each other in a
// row. The first `vectors` of them have `width` elements or are null.
inline void finish_column_sums(Queue queue, const char* name, const std::array<float*, 3>& out, int vectors,
                               int64_t width, int64_t rows) {
  const int64_t C = width * vectors;
  launch(queue, {name, blocks_for(C, column_sums::strip), column_sums::strip * column_sums::lines},
         finish_column_sums_kernel<>, out[0], out[1], out[2], width, static_cast<const float*>(queue.workspace), rows,
         C);
}

}  // namespace megalith::cuda
