#include "trainer/step/orthogonalize.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise/transpose.h"
#include "kernels/linear/linear.h"
#include "kernels/update/muon.h"

namespace megalith {

namespace {

// y (k, k) = x x^T, where x has k rows; `free` has room for k * k elements.
void symmetric_product(Stream& s, const Tensor& y, const Tensor& x, const Tensor& free) {
  const int64_t k = x.rows(), n = x.cols();
  const Panels panels = panels_of(k, x.dtype());
  if (panels.count() == 1) return launch(s, LinearForward{.y = y, .x = x, .w = x});
  for (int64_t p = 0; p < panels.count(); p++) {
    const int64_t first = panels.first_row(p), width = panels.width(p), begin = panels.offset(p);
    launch(s, LinearForward{.y = free.flat(begin, begin + (width - first) * width).view({width - first, width}),
                            .x = x.flat(first * n, width * n).view({width - first, n}),
                            .w = x.flat(0, width * n).view({width, n})});
  }
  launch(s, JoinPanels{.y = y, .panels = free.flat(0, panels.numel()), .form = panels});
}

}  // namespace

Orthogonalizer::Orthogonalizer(Arena& arena, DType type, int64_t numel, int64_t side)
    : first_(arena.tensor(type, {numel})),
      second_(arena.tensor(type, {numel})),
      gram_(arena.tensor(type, {side * side})),
      square_(arena.tensor(type, {side * side})) {}

// Computes (c0 I + c1 A + c2 A A) X, A = X X^T, for a matrix that is at least as wide as high; for a higher one, with
// its transpose.
Tensor Orthogonalizer::orthogonalize(Stream& s, int64_t rows, int64_t columns) const {
  const int64_t k = std::min(rows, columns), n = std::max(rows, columns);
  const Tensor gram = view(gram_, k, k), square = view(square_, k, k);
  Tensor now = first_, free = second_;
  launch(s, ScaleToUnitNorm{.x = view(now, rows, columns)});
  if (rows > columns) {
    launch(s, Transpose{.y = view(free, k, n), .x = view(now, n, k)});
    std::swap(now, free);
  }
  for (int step = 0; step < newton_schulz::steps; step++) {
    symmetric_product(s, gram, view(now, k, n), free);
    symmetric_product(s, square, gram, free);
    launch(s, NewtonSchulzPolynomial{.y = square, .a = gram, .b = square});
    launch(s, LinearBackwardInput{.dx = view(free, k, n), .dy = square, .w = view(now, k, n)});
    std::swap(now, free);
  }
  if (rows > columns) {
    launch(s, Transpose{.y = view(free, n, k), .x = view(now, k, n)});
    std::swap(now, free);
  }
  return view(now, rows, columns);
}

}  // namespace megalith
