#include "kernels/elementwise/transpose.h"

#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

namespace {
constexpr int64_t side = 32;  // of the squares that are turned over in the first cache

// to[c * to_stride + r] = from[r * from_stride + c] for `rows` r and `cols` c.
template <class T>
void turn_over(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t rows, int64_t cols) {
  for (int64_t c = 0; c < cols; c++)
    for (int64_t r = 0; r < rows; r++) to[c * to_stride + r] = from[r * from_stride + c];
}
}  // namespace

void transpose(Tensor y_, Tensor x_) {
  const int64_t rows = x_.rows(), cols = x_.cols();
  with_f32_or_bf16(x_.dtype(), [&]<class T>(T) {
    T* y = y_.data<T>();
    const T* x = x_.data<T>();
    parallel_for((cols + side - 1) / side, side * rows, [=](int64_t begin, int64_t end) {
      for (int64_t c = begin * side; c < std::min(end * side, cols); c += side)
        for (int64_t r = 0; r < rows; r += side)
          turn_over(y + c * rows + r, rows, x + r * cols + c, cols, std::min(side, rows - r), std::min(side, cols - c));
    });
  });
}

void join_panels(Tensor y_, Tensor panels_, const Panels& p) {
  const int64_t k = p.size;
  with_f32_or_bf16(y_.dtype(), [&]<class T>(T) {
    T* y = y_.data<T>();
    const T* panels = panels_.data<T>();
    parallel_for((k + side - 1) / side, side * k, [=](int64_t begin, int64_t end) {
      for (int64_t first = begin * side; first < std::min(end * side, k); first += side) {
        const int64_t last = std::min(first + side, k), width = p.width(first / p.rows);
        for (int64_t r = first; r < last; r++) {
          const int64_t q = r / p.rows;
          const T* row = panels + p.offset(q) + (r - p.first_row(q)) * p.width(q);
          std::copy(row, row + p.width(q), y + r * k);
        }
        // Columns from `width` on are rows of later panels.
        for (int64_t c = width; c < k; c += side) {
          const int64_t q = c / p.rows;
          turn_over(y + first * k + c, k, panels + p.offset(q) + (c - p.first_row(q)) * p.width(q) + first, p.width(q),
                    std::min(side, k - c), last - first);
        }
      }
    });
  });
}

}  // namespace megalith::cpu
