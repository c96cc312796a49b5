#include "kernels/elementwise/transpose.h"

#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

namespace {
constexpr int64_t side = 32;  // side of the squares that are transposed in the first cache

// to[c * to_stride + r] = from[r * from_stride + c] for `rows` r and `cols` c.
template <class T>
void turn_over(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t rows, int64_t cols) {
  for (int64_t c = 0; c < cols; c++)
    for (int64_t r = 0; r < rows; r++) to[c * to_stride + r] = from[r * from_stride + c];
}
}  // namespace

void run(Queue&, const Transpose& op) {
  const int64_t rows = op.x.rows(), cols = op.x.cols();
  with_f32_or_bf16(op.x.dtype(), [&]<class T>(T) {
    T* y = op.y.data<T>();
    const T* x = op.x.data<T>();
    parallel_for((cols + side - 1) / side, side * rows, [=](int64_t begin, int64_t end) {
      for (int64_t c = begin * side; c < std::min(end * side, cols); c += side)
        for (int64_t r = 0; r < rows; r += side)
          turn_over(y + c * rows + r, rows, x + r * cols + c, cols, std::min(side, rows - r), std::min(side, cols - c));
    });
  });
}

void run(Queue&, const JoinPanels& op) {
  const int64_t k = op.form.size;
  with_f32_or_bf16(op.y.dtype(), [&]<class T>(T) {
    T* y = op.y.data<T>();
    const T* panels = op.panels.data<T>();
    parallel_for((k + side - 1) / side, side * k, [=](int64_t begin, int64_t end) {
      for (int64_t first = begin * side; first < std::min(end * side, k); first += side) {
        const int64_t last = std::min(first + side, k), width = op.form.width(first / op.form.rows);
        for (int64_t r = first; r < last; r++) {
          const int64_t q = r / op.form.rows;
          const T* row = panels + op.form.offset(q) + (r - op.form.first_row(q)) * op.form.width(q);
          std::copy(row, row + op.form.width(q), y + r * k);
        }
        // Columns from `width` on are rows of later panels.
        for (int64_t c = width; c < k; c += side) {
          const int64_t q = c / op.form.rows;
          turn_over(y + first * k + c, k,
                    panels + op.form.offset(q) + (c - op.form.first_row(q)) * op.form.width(q) + first,
                    op.form.width(q), std::min(side, k - c), last - first);
        }
      }
    });
  });
}

}  // namespace megalith::cpu
