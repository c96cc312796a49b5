// Muon without its matrix products: momentum, the steps around the products of Newton-Schulz's iteration, and the
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
  double size = 1;  // factor of the direction
};

namespace newton_schulz {
constexpr double momentum = 0.95, smallest_norm = 1e-7;
constexpr double c0 = 3.4445, c1 = -4.7750, c2 = 2.0315;
constexpr int steps = 5;
}  // namespace newton_schulz

// A skipped step writes nothing. Of the words of rounding (Rounding::words), m takes the second.
struct MuonMomentum {
  static constexpr const char* name = "muon_momentum";
  Tensor m;      // (n) f32 or bf16, in place
  Tensor grad;   // (n) f32, becomes u
  Tensor state;  // as written by DecideUpdate (decide_update.h)
  Rounding rounding{};
};

// x = x / max(|x|, 1e-7). The sum is in f64 and in an order that depends on the number of elements alone.
struct ScaleToUnitNorm {
  static constexpr const char* name = "scale_to_unit_norm";
  Tensor x;  // f32 or bf16, in place
};

// y = c0 I + c1 a + c2 b, the polynomial of a square matrix a, whose square is b.
struct NewtonSchulzPolynomial {
  static constexpr const char* name = "newton_schulz_polynomial";
  Tensor y;     // (k, k), written; may be a or b
  Tensor a, b;  // (k, k); f32 or bf16, all of one type
};

// Copies columns of a matrix (R, columns.total) from a part (R, columns.count), and back; both f32 or both bf16.
struct PutColumns {
  static constexpr const char* name = "put_columns";
  Tensor whole;  // these columns are written
  Tensor part;
  Columns columns;
};
struct TakeColumns {
  static constexpr const char* name = "take_columns";
  Tensor part;  // written
  Tensor whole;
  Columns columns;
};

// Updates the weights by a direction. A skipped step writes nothing. The master takes the first word of rounding.
struct MuonUpdate {
  static constexpr const char* name = "muon_update";
  Tensor master;     // (n) f32 or bf16, in place
  Tensor working{};  // (n), in a compute type: the new master rounded to nearest; empty when the master itself computes
  Tensor direction;  // (n) f32
  Tensor state;
  Muon muon;
  Rounding rounding{};
};

void launch(Stream& s, const MuonMomentum& op);
void launch(Stream& s, const ScaleToUnitNorm& op);
void launch(Stream& s, const NewtonSchulzPolynomial& op);
void launch(Stream& s, const PutColumns& op);
void launch(Stream& s, const TakeColumns& op);
void launch(Stream& s, const MuonUpdate& op);
namespace cpu {
void run(Queue& queue, const MuonMomentum& op);
void run(Queue& queue, const ScaleToUnitNorm& op);
void run(Queue& queue, const NewtonSchulzPolynomial& op);
void run(Queue& queue, const PutColumns& op);
void run(Queue& queue, const TakeColumns& op);
void run(Queue& queue, const MuonUpdate& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const MuonMomentum& op);
void run(Queue queue, const ScaleToUnitNorm& op);
void run(Queue queue, const NewtonSchulzPolynomial& op);
void run(Queue queue, const PutColumns& op);
void run(Queue queue, const TakeColumns& op);
void run(Queue queue, const MuonUpdate& op);
}  // namespace cuda

}  // namespace megalith
