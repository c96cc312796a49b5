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
  if (panels.count() == 1) return linear_forward(s, y, x, x, {});
  for (int64_t p = 0; p < panels.count(); p++) {
    const int64_t first = panels.first_row(p), width = panels.width(p), begin = panels.offset(p);
    linear_forward(s, free.flat(begin, begin + (width - first) * width).view({width - first, width}),
                   x.flat(first * n, width * n).view({width - first, n}), x.flat(0, width * n).view({width, n}), {});
  }
  join_panels(s, y, free.flat(0, panels.numel()), panels);
}

}  // namespace

Orthogonalizer::Orthogonalizer(Arena& arena, DType type, int64_t numel, int64_t side)
    : first_(arena.tensor(type, {numel})),
      second_(arena.tensor(type, {numel})),
      gram_(arena.tensor(type, {side * side})),
      square_(arena.tensor(type, {side * side})) {}

// (c0 I + c1 A + c2 A A) X, A = X X^T, of a matrix that is at least as wide as high; of a higher one, its transpose.
Tensor Orthogonalizer::orthogonalize(Stream& s, int64_t rows, int64_t columns) const {
  const int64_t k = std::min(rows, columns), n = std::max(rows, columns);
  const Tensor gram = view(gram_, k, k), square = view(square_, k, k);
  Tensor now = first_, free = second_;
  scale_to_unit_norm(s, view(now, rows, columns));
  if (rows > columns) {
    transpose(s, view(free, k, n), view(now, n, k));
    std::swap(now, free);
  }
  for (int step = 0; step < newton_schulz::steps; step++) {
    symmetric_product(s, gram, view(now, k, n), free);
    symmetric_product(s, square, gram, free);
    newton_schulz_polynomial(s, square, gram, square);
    linear_backward_input(s, view(free, k, n), square, view(now, k, n));
    std::swap(now, free);
  }
  if (rows > columns) {
    transpose(s, view(free, n, k), view(now, k, n));
    std::swap(now, free);
  }
  return view(now, rows, columns);
}

}  // namespace megalith
