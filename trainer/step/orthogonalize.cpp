#include "trainer/step/orthogonalize.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/linear.h"
#include "kernels/muon.h"

namespace megalith {

Orthogonalizer::Orthogonalizer(Arena& arena, DType type, int64_t numel, int64_t side)
    : first_(arena.tensor(type, {numel})),
      second_(arena.tensor(type, {numel})),
      gram_(arena.tensor(type, {side * side})),
      square_(arena.tensor(type, {side * side})) {
  if (type != DType::f32) wide_ = arena.tensor(DType::f32, {side * side});
}

// (c0 I + c1 A + c2 A A) X, A = X X^T; of a tall matrix X (c0 I + c1 A + c2 A A), A = X^T X. A is symmetric, so its
// transpose, by which linear_forward multiplies, is A.
Tensor Orthogonalizer::orthogonalize(Stream& s, int64_t rows, int64_t columns) const {
  const bool tall = rows > columns;
  const int64_t k = std::min(rows, columns);
  Tensor x = view(first_, rows, columns), y = view(second_, rows, columns);
  const Tensor gram = view(gram_, k, k), square = view(square_, k, k);
  scale_to_unit_norm(s, x);
  for (int step = 0; step < newton_schulz::steps; step++) {
    if (!tall) {
      linear_forward(s, gram, x, x, {});
    } else if (wide_.empty()) {
      linear_backward_weight(s, gram, {}, x, x, false);
    } else {
      linear_backward_weight(s, view(wide_, k, k), {}, x, x, false);
      copy(s, gram, view(wide_, k, k));
    }
    linear_forward(s, square, gram, gram, {});
    newton_schulz_polynomial(s, square, gram, square);
    if (tall)
      linear_forward(s, y, x, square, {});
    else
      linear_backward_input(s, y, square, x);
    std::swap(x, y);
  }
  return x;
}

}  // namespace megalith
