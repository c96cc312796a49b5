// Draws dropout's mask row by row, and computes the rows of a residual with dropout.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/elementwise/dropout.h"
#include "kernels/elementwise/philox.h"
#include "kernels/elementwise/residual.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

class DropoutMask {
 public:
  explicit DropoutMask(const Dropout& d)
      : key_(d.drawn.empty() ? dropout_key(d) : drawn_number(d.drawn.data<int32_t>(), 1 + d.site)),
        first_row_(static_cast<uint64_t>(d.first_row) +
                   (d.drawn.empty() ? 0 : drawn_number(d.drawn.data<int32_t>(), 0))),
        threshold_(dropout_threshold(d)),
        scale_(static_cast<float>(1.0 / (1.0 - d.p))) {}

  uint64_t first_row() const { return first_row_; }

  // Sets factors[i] to 0 or 1 / (1 - p) for columns first + i, 0 <= i < n, of the row that starts at counter (row,
  // group). `first` is a multiple of 64.
  void draw(float* factors, uint64_t row, uint64_t group, int64_t first, int64_t n) const {
    group += static_cast<uint64_t>(first / 4);  // 16 counters for 64 columns
    int64_t done = 0;
    for (; done + batch <= n; done += batch) draw_batch(factors + done, row, group + static_cast<uint64_t>(done / 4));
    if (done == n) return;
    float rest[batch];
    draw_batch(rest, row, group + static_cast<uint64_t>(done / 4));
    std::copy(rest, rest + (n - done), factors + done);
  }

 private:
  static constexpr int64_t blocks = 16, batch = 4 * blocks;

  // Runs philox() for 16 consecutive counters at once, so that the rounds are vectorized.
  void draw_batch(float* factors, uint64_t row, uint64_t group) const {
    const uint32_t threshold = threshold_;
    const float scale = scale_;
    const uint64_t key = key_;
#pragma omp simd
    for (int64_t i = 0; i < blocks; i++) {
      const uint64_t counter = group + static_cast<uint64_t>(i);
      uint32_t x0 = static_cast<uint32_t>(row), x1 = static_cast<uint32_t>(row >> 32);
      uint32_t x2 = static_cast<uint32_t>(counter), x3 = static_cast<uint32_t>(counter >> 32);
      uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
      for (int round = 0; round < 10; round++) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * x0, p1 = uint64_t{0xCD9E8D57u} * x2;
        x0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ k0;
        x1 = static_cast<uint32_t>(p1);
        x2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ k1;
        x3 = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
      }
      factors[i] = x0 < threshold ? 0.0f : scale;
      factors[blocks + i] = x1 < threshold ? 0.0f : scale;
      factors[2 * blocks + i] = x2 < threshold ? 0.0f : scale;
      factors[3 * blocks + i] = x3 < threshold ? 0.0f : scale;
    }
  }

  uint64_t key_, first_row_;
  uint32_t threshold_;
  float scale_;
};

constexpr int64_t masked_run = 256;  // columns whose factors are drawn together; a multiple of 64
constexpr int64_t draw_work = 8;     // the cost of a factor in element operations

// Computes one row of y = x + dropout(h + b).
template <class T, class R>
[[gnu::always_inline]] inline void residual_row(R* y, const R* x, const T* h, const T* b, int64_t C) {
#pragma omp simd
  for (int64_t c = 0; c < C; c++) put(y[c], get(x[c]) + (get(h[c]) + get(b[c])));
}
template <class T, class R>
[[gnu::always_inline]] inline void residual_row(R* y, const R* x, const T* h, const T* b, int64_t C,
                                                const DropoutMask& mask, uint64_t row) {
  float factors[masked_run];
  for (int64_t first = 0; first < C; first += masked_run) {
    const int64_t count = std::min(masked_run, C - first);
    mask.draw(factors, row, 0, first, count);
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
      put(y[first + i], get(x[first + i]) + (get(h[first + i]) + get(b[first + i])) * factors[i]);
  }
}

// Calls end_row(n, y) for every row after residual_row has written it.
template <class T, class R, class End>
void residual_rows(const ResidualForward& op, int64_t more_work, End&& end_row) {
  R* y = op.y.data<R>();
  const R* x = op.x.data<R>();
  const int64_t N = op.x.rows(), C = op.x.cols();
  const std::vector<T> zeros(static_cast<size_t>(op.b.empty() ? C : 0));
  const T *h = op.h.data<T>(), *b = op.b.empty() ? zeros.data() : op.b.data<T>();
  if (!op.dropout.active()) {
    parallel_for(N, C + more_work, [=](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; n++) {
        residual_row(y + n * C, x + n * C, h + n * C, b, C);
        end_row(n, y + n * C);
      }
    });
    return;
  }
  const DropoutMask mask(op.dropout);
  const uint64_t first_row = mask.first_row();
  parallel_for(N, C * draw_work + more_work, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; n++) {
      residual_row(y + n * C, x + n * C, h + n * C, b, C, mask, first_row + static_cast<uint64_t>(n));
      end_row(n, y + n * C);
    }
  });
}

}  // namespace megalith::cpu
