// A tensor is read once for its largest magnitude and once more for its values of 8 bits. Products are the library's
// (linear_cuda.cpp).
#include "kernels/linear/fp8.h"

#include <algorithm>

#include "kernels/loops/largest_cuda.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256;

template <class T, int n>
__global__ void __launch_bounds__(threads) largest_kernel(LargestOfBlocks to, const T* x, int64_t count) {
  unsigned largest = 0;
  for (int64_t i = (int64_t{blockIdx.x} * threads + threadIdx.x) * n; i + n <= count;
       i += int64_t{gridDim.x} * threads * n)
    take_larger(largest, load<n>(x + i));
  store_largest<threads>(to, largest);
}

// A block casts or transposes a square, 16 bytes of x at a time. The transpose goes through shared memory, 16 bytes of
// a column at a time; rows there are so long that the threads of a warp read from different banks.
constexpr int side = 64, pitch = side + 2;
struct Square {
  uint8_t at[side][pitch];
};

__device__ __forceinline__ void store_transposed(uint8_t* transposed, const Square& square, int64_t rows,
                                                 int64_t cols) {
  const int64_t first_row = int64_t{blockIdx.x} * side, first_col = int64_t{blockIdx.y} * side;
  constexpr int column = 16, down = side / column;
  for (int i = static_cast<int>(threadIdx.x); i < side * down; i += threads) {
    const int c = i / down, r = i % down * column;
    if (first_row + r >= rows || first_col + c >= cols) continue;
    Vector<uint8_t, column> to;
    for (int k = 0; k < column; k++) to[k] = square.at[r + k][c];
    store(transposed + (first_col + c) * rows + first_row + r, to);
  }
}

template <class To, class From>
__global__ void __launch_bounds__(threads) cast_kernel(uint8_t* y, uint8_t* transposed, float* unscale, const From* x,
                                                       const float* amax, int64_t rows, int64_t cols, float largest) {
  __shared__ Square square;
  const float scale = fp8_scale(*amax, largest);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *unscale = 1 / scale;
  const int64_t first_row = int64_t{blockIdx.x} * side, first_col = int64_t{blockIdx.y} * side;
  constexpr int n = 16 / sizeof(From), across = side / n;
  for (int i = static_cast<int>(threadIdx.x); i < side * across; i += threads) {
    const int r = i / across, c = i % across * n;
    if (first_row + r >= rows || first_col + c >= cols) continue;
    const int64_t at = (first_row + r) * cols + first_col + c;
    const Vector<From, n> from = load_once<n>(x + at);
    Vector<uint8_t, n> to;
    for (int k = 0; k < n; k += 2) {
      const unsigned two = pack<To>(to_float(from[k]) * scale, to_float(from[k + 1]) * scale);
      to[k] = static_cast<uint8_t>(two);
      to[k + 1] = static_cast<uint8_t>(two >> 8);
    }
    if (y) store(y + at, to);
    for (int k = 0; k < n; k++) square.at[r][c + k] = to[k];
  }
  if (!transposed) return;
  sync_threads();
  store_transposed(transposed, square, rows, cols);
}

template <class = void>
__global__ void __launch_bounds__(threads) transpose_kernel(uint8_t* y, const uint8_t* x, int64_t rows, int64_t cols) {
  __shared__ Square square;
  const int64_t first_row = int64_t{blockIdx.x} * side, first_col = int64_t{blockIdx.y} * side;
  constexpr int n = 16, across = side / n;
  for (int i = static_cast<int>(threadIdx.x); i < side * across; i += threads) {
    const int r = i / across, c = i % across * n;
    if (first_row + r >= rows || first_col + c >= cols) continue;
    const Vector<uint8_t, n> from = load_once<n>(x + (first_row + r) * cols + first_col + c);
    for (int k = 0; k < n; k++) square.at[r][c + k] = from[k];
  }
  sync_threads();
  store_transposed(y, square, rows, cols);
}
}  // namespace

namespace {
// At least one, which writes the scale.
dim3 squares_of(const Tensor& x) {
  return dim3(blocks_for(std::max<int64_t>(x.rows(), 1), side), blocks_for(x.cols(), side));
}
}  // namespace

void run(Queue queue, const LargestMagnitude& op) {
  const int64_t count = op.x.numel();
  with_compute_type(op.x.dtype(), [&]<class T>(T) {
    with_width<16 / sizeof(T)>(aligned(op.x.raw()) && count * sizeof(T) % 16 == 0, [&](auto n) {
      // Eight blocks for each of the 132 multiprocessors of an H100, with at least eight vectors a thread.
      const auto blocks =
          static_cast<unsigned>(std::clamp<int64_t>(ceil_div(count, int64_t{threads} * n * 8), 1, 1056));
      launch(queue, {op.name, blocks, threads}, largest_kernel<T, n>, LargestOfBlocks(queue, {op.amax}, blocks),
             op.x.data<T>(), count);
      raise_largest(queue, op.name, op.amax, blocks);
    });
  });
}

void run(Queue queue, const CastToFp8& op) {
  const int64_t rows = op.x.rows(), cols = op.x.cols();
  const DType type = op.y.empty() ? op.transposed.dtype() : op.y.dtype();
  const dim3 squares = squares_of(op.x);
  with_8_bits(type, [&]<class To>(To) {
    with_compute_type(op.x.dtype(), [&]<class From>(From) {
      launch(queue, {op.name, squares, threads}, cast_kernel<To, From>, static_cast<uint8_t*>(op.y.raw()),
             static_cast<uint8_t*>(op.transposed.raw()), op.unscale.data<float>(), op.x.data<From>(),
             op.amax.data<float>(), rows, cols, largest_of(type));
    });
  });
}

void run(Queue queue, const TransposeFp8& op) {
  launch(queue, {op.name, squares_of(op.x), threads}, transpose_kernel<>, static_cast<uint8_t*>(op.y.raw()),
         static_cast<const uint8_t*>(op.x.raw()), op.x.rows(), op.x.cols());
}

}  // namespace megalith::cuda
