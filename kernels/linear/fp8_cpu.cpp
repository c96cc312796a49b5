#include <algorithm>

#include "kernels/linear/fp8.h"
#include "kernels/loops/largest_cpu.h"

namespace megalith::cpu {

namespace {
// Casts rows [begin, end) in squares, so that a square's transpose is written from the first cache.
template <class To, class From>
void cast_rows(const CastToFp8& op, float scale, int64_t begin, int64_t end) {
  constexpr int64_t square_side = 64;
  const int64_t rows = op.x.rows(), cols = op.x.cols();
  const From* x = op.x.data<From>();
  To *y = op.y.data_or_null<To>(), *transposed = op.transposed.data_or_null<To>();
  for (int64_t first = begin; first < end; first += square_side)
    for (int64_t left = 0; left < cols; left += square_side) {
      To square[square_side][square_side];
      const int64_t height = std::min(square_side, end - first), width = std::min(square_side, cols - left);
      for (int64_t r = 0; r < height; r++) {
        const From* from = x + (first + r) * cols + left;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) put(square[r][c], get(from[c]) * scale);
        if (y != nullptr) std::copy(square[r], square[r] + width, y + (first + r) * cols + left);
      }
      for (int64_t c = 0; transposed != nullptr && c < width; c++)
        for (int64_t r = 0; r < height; r++) transposed[(left + c) * rows + first + r] = square[r][c];
    }
}
}  // namespace

void run(Queue&, const LargestMagnitude& op) { raise_largest({op.amax, 1}, op.x.view({1, op.x.numel()})); }

void run(Queue&, const CastToFp8& op) {
  const DType type = op.y.empty() ? op.transposed.dtype() : op.y.dtype();
  const float scale = fp8_scale(*op.amax.data<float>(), largest_of(type));
  *op.unscale.data<float>() = 1 / scale;
  with_8_bits(type, [&]<class To>(To) {
    with_compute_type(op.x.dtype(), [&]<class From>(From) {
      parallel_for(op.x.rows(), op.x.cols(),
                   [&](int64_t begin, int64_t end) { cast_rows<To, From>(op, scale, begin, end); });
    });
  });
}

void run(Queue&, const TransposeFp8& op) {
  const int64_t rows = op.x.rows(), cols = op.x.cols();
  const auto* x = static_cast<const uint8_t*>(op.x.raw());
  auto* y = static_cast<uint8_t*>(op.y.raw());
  constexpr int64_t block = 64;  // rows of x, whose elements fill a cache line of y
  parallel_for(cols, rows, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < rows; first += block)
      for (int64_t c = begin; c < end; c++)
        for (int64_t r = first; r < std::min(rows, first + block); r++) y[c * rows + r] = x[r * cols + c];
  });
}

}  // namespace megalith::cpu
