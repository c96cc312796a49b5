// What Muon does beside products: momentum, what Newton-Schulz's iteration needs around its products, and the update.
// For a matrix with gradient g, all steps of one update:
//   momentum   g = scale * grad;  m = b m + (1 - b) g;  u = (1 - b) g + b m           (Nesterov's)
//   iteration  X = u / max(|u|, 1e-7), Frobenius' norm;  five times  A = X X^T,  X = (c0 I + c1 A + c2 A A) X
//   update     p = p - lr * decay * p - lr * size * X,  size = 0.2 sqrt(max(rows, columns))
// X comes close to the orthogonal matrix nearest to u, and `size` gives it the root mean square of AdamW's updates.
// Sources: Jordan et al., Muon, 2024; Liu et al., arXiv 2502.16982 (size); constants as torch.optim.Muon's.
//
// Arithmetic is in f32 whatever the types; bf16 state is rounded as AdamW's is (adamw.h).
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/columns.h"
#include "kernels/tensor/tensor.h"
#include "kernels/update/adamw.h"

namespace megalith {

struct Muon {
  double learning_rate = 0;
  double weight_decay = 0;
  double size = 1;  // of the direction
};

namespace newton_schulz {
constexpr double momentum = 0.95, smallest_norm = 1e-7;
constexpr double c0 = 3.4445, c1 = -4.7750, c2 = 2.0315;
constexpr int steps = 5;
}  // namespace newton_schulz

// m (n) f32 or bf16 in place; grad (n) f32 becomes u. state comes from decide_update (decide_update.h). A skipped step
// writes nothing. Of the words of rounding (Rounding::words), m takes the second.
void muon_momentum(Stream& s, Tensor m, Tensor grad, Tensor state, const Rounding& rounding = {});

// x = x / max(|x|, 1e-7), f32 or bf16. The sum is in f64 and in an order that depends on the number of elements alone.
void scale_to_unit_norm(Stream& s, Tensor x);

// y (k, k) = c0 I + c1 a + c2 b, the polynomial of a square matrix a, whose square is b; f32 or bf16, all of one type.
// y may be a or b.
void newton_schulz_polynomial(Stream& s, Tensor y, Tensor a, Tensor b);

// Columns c of whole (R, c.total) = part (R, c.count), and the other way; both f32 or both bf16.
void put_columns(Stream& s, Tensor whole, Tensor part, const Columns& c);
void take_columns(Stream& s, Tensor part, Tensor whole, const Columns& c);

// Updates master (n), f32 or bf16, in place by direction (n) f32. working (n), in a compute type, receives the new
// master rounded to nearest; it is empty when the master itself computes. A skipped step writes nothing. Of the words
// of rounding, the master takes the first.
void muon_update(Stream& s, Tensor master, Tensor working, Tensor direction, Tensor state, const Muon& muon,
                 const Rounding& rounding = {});

namespace cpu {
void muon_momentum(Tensor m, Tensor grad, Tensor state, const Rounding& rounding);
void scale_to_unit_norm(Tensor x);
void newton_schulz_polynomial(Tensor y, Tensor a, Tensor b);
void put_columns(Tensor whole, Tensor part, const Columns& c);
void take_columns(Tensor part, Tensor whole, const Columns& c);
void muon_update(Tensor master, Tensor working, Tensor direction, Tensor state, const Muon& muon,
                 const Rounding& rounding);
}  // namespace cpu
namespace cuda {
void muon_momentum(Queue queue, Tensor m, Tensor grad, Tensor state, const Rounding& rounding);
void scale_to_unit_norm(Queue queue, Tensor x);
void newton_schulz_polynomial(Queue queue, Tensor y, Tensor a, Tensor b);
void put_columns(Queue queue, Tensor whole, Tensor part, const Columns& c);
void take_columns(Queue queue, Tensor part, Tensor whole, const Columns& c);
void muon_update(Queue queue, Tensor master, Tensor working, Tensor direction, Tensor state, const Muon& muon,
                 const Rounding& rounding);
}  // namespace cuda

}  // namespace megalith
