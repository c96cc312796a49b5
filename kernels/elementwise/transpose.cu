// A block transposes a tile of 32 x 32 elements in shared memory, so that reads and writes both go along rows.
#include "kernels/elementwise/transpose.h"
#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

namespace {
constexpr int side = warp_size, threads = 256;
constexpr int tile_rows = threads / side;  // rows of a tile that all threads move at once

template <class T>
__global__ void __launch_bounds__(threads) transpose_kernel(T* y, const T* x, int64_t rows, int64_t cols) {
  __shared__ T tile[side][side + 1];
  const int64_t first_row = int64_t{blockIdx.y} * side, first_col = int64_t{blockIdx.x} * side;
  const int lane = lane_index();
  for (int i = warp_index(); i < side; i += tile_rows)
    if (first_row + i < rows && first_col + lane < cols) tile[i][lane] = x[(first_row + i) * cols + first_col + lane];
  sync_threads();
  for (int i = warp_index(); i < side; i += tile_rows)
    if (first_col + i < cols && first_row + lane < rows) y[(first_col + i) * rows + first_row + lane] = tile[lane][i];
}

// Block (x, y) copies the tile of row y and column x if a panel holds it. It also writes the tile's transpose to the
// place that no panel holds.
template <class T>
__global__ void __launch_bounds__(threads) join_panels_kernel(T* y, const T* panels, Panels p) {
  __shared__ T tile[side][side + 1];
  const int64_t first_row = int64_t{blockIdx.y} * side, first_col = int64_t{blockIdx.x} * side;
  const int64_t panel = first_row / p.rows, width = p.width(panel);
  if (first_col >= width) return;
  const T* from = panels + p.offset(panel) - p.first_row(panel) * width;
  const int lane = lane_index();
  for (int i = warp_index(); i < side; i += tile_rows)
    if (first_row + i < p.size && first_col + lane < width) {
      const T value = from[(first_row + i) * width + first_col + lane];
      tile[i][lane] = value;
      y[(first_row + i) * p.size + first_col + lane] = value;
    }
  if (first_row < p.width(first_col / p.rows)) return;
  sync_threads();
  for (int i = warp_index(); i < side; i += tile_rows)
    if (first_row + lane < p.size) y[(first_col + i) * p.size + first_row + lane] = tile[lane][i];
}

template <class F>
void with_bits_of(DType type, F&& f) {
  if (size_of(type) == 2)
    f(uint16_t{});
  else
    f(uint32_t{});
}
dim3 tiles(int64_t rows, int64_t cols) {
  return dim3(static_cast<unsigned>(ceil_div(cols, side)), static_cast<unsigned>(ceil_div(rows, side)));
}
}  // namespace

void run(Queue queue, const Transpose& op) {
  if (op.x.numel() == 0) return;
  with_bits_of(op.x.dtype(), [&]<class T>(T) {
    launch(queue, {op.name, tiles(op.x.rows(), op.x.cols()), threads}, transpose_kernel<T>, static_cast<T*>(op.y.raw()),
           static_cast<const T*>(op.x.raw()), op.x.rows(), op.x.cols());
  });
}

void run(Queue queue, const JoinPanels& op) {
  with_bits_of(op.y.dtype(), [&]<class T>(T) {
    launch(queue, {op.name, tiles(op.form.size, op.form.size), threads}, join_panels_kernel<T>,
           static_cast<T*>(op.y.raw()), static_cast<const T*>(op.panels.raw()), op.form);
  });
}

}  // namespace megalith::cuda
