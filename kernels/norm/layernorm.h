// LayerNorm over the last dimension:
//   mean = sum(x) / C, rstd = 1 / sqrt(sum((x - mean)^2) / C + epsilon), xhat = (x - mean) * rstd, y = xhat * w + b
// and with g = dy * w:
//   dx = rstd * (g - sum(g) / C - xhat * sum(g * xhat) / C), dw = sum_n dy * xhat, db = sum_n dy.
// RMSNorm takes the mean for 0, and so leaves sum(g) out. Either may have no bias, and then b and db are empty.
// Sources: Ba, Kiros, Hinton, Layer Normalization, arXiv 1607.06450; Zhang, Sennrich, Root Mean Square Layer
// Normalization, arXiv 1910.07467.
//
// A residual branch and the next norm are also one op, and so are their adjoints: each row is read once for both.
//
// What belongs to the residual stream, x, dx and the sum of a branch and x, is f32 or has the type that the branches
// compute in, which all else has unless it says otherwise: f32, bf16 or f16.
#pragma once

#include "kernels/elementwise/dropout.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/largest.h"

namespace megalith {

struct NormRule {
  bool centered = true;  // false: RMSNorm
  float epsilon = 1e-5f;
};

struct LayerNormForward {
  static constexpr const char* name = "layernorm_forward";
  Tensor y;     // (N, C), written
  Tensor stat;  // (N, 2) f32, written: {mean, rstd}
  Tensor x;     // (N, C), of the residual
  Tensor w;     // (C)
  Tensor b{};   // (C)
  NormRule rule{};
  Largest largest{};  // |y|
};

// dw and db are summed in an order that does not depend on the number of threads.
struct LayerNormBackward {
  static constexpr const char* name = "layernorm_backward";
  Tensor dx;          // (N, C), accumulates: the gradient of the residual stream to which x belongs
  Tensor dw{}, db{};  // (C) f32, accumulate; either may be empty
  Tensor dy;          // (N, C)
  Tensor x;           // (N, C) in dx's dtype
  Tensor stat, w;     // stat as saved
  NormRule rule{};
};

// y = x + dropout(h + h_b) and ln = layernorm(y), from y as it is stored.
struct ResidualLayerNormForward {
  static constexpr const char* name = "residual_layernorm_forward";
  Tensor y, ln;  // (N, C), written
  Tensor stat;   // (N, 2) f32, written
  Tensor x;      // (N, C) in y's dtype
  Tensor h;      // (N, C)
  Tensor h_b{};  // (C); empty: the branch has no bias
  Tensor w;      // (C)
  Tensor b{};    // (C)
  Dropout dropout{};
  NormRule rule{};
  Largest largest{};  // |ln|
};

// The adjoint: LayerNormBackward of dln, where dx holds the gradient of y on entry and that of x on return; then
// dh = dropout(dx) and dh_b += sum_n dh, both from dx before rounding.
struct ResidualLayerNormBackward {
  static constexpr const char* name = "residual_layernorm_backward";
  Tensor dx;                  // (N, C), in place
  Tensor dh;                  // (N, C), written; may be dx without dropout, if it has its type
  Tensor dh_b{}, dw{}, db{};  // (C) f32, accumulate; each may be empty
  Tensor dln;                 // (N, C)
  Tensor y;                   // (N, C) in dx's dtype
  Tensor stat, w;             // stat as saved
  Dropout dropout{};
  NormRule rule{};
};

// The part that is a layer norm.
inline LayerNormBackward norm_of(const ResidualLayerNormBackward& op) {
  return {.dx = op.dx, .dw = op.dw, .db = op.db, .dy = op.dln, .x = op.y, .stat = op.stat, .w = op.w, .rule = op.rule};
}

void launch(Stream& s, const LayerNormForward& op);
void launch(Stream& s, const LayerNormBackward& op);
void launch(Stream& s, const ResidualLayerNormForward& op);
void launch(Stream& s, const ResidualLayerNormBackward& op);
namespace cpu {
void run(Queue& queue, const LayerNormForward& op);
void run(Queue& queue, const LayerNormBackward& op);
void run(Queue& queue, const ResidualLayerNormForward& op);
void run(Queue& queue, const ResidualLayerNormBackward& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const LayerNormForward& op);
void run(Queue queue, const LayerNormBackward& op);
void run(Queue queue, const ResidualLayerNormForward& op);
void run(Queue queue, const ResidualLayerNormBackward& op);
}  // namespace cuda

}  // namespace megalith
