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
#include "kernels/tensor/tensor.h"

namespace megalith {

struct NormRule {
  bool centered = true;  // false: RMSNorm
  float epsilon = 1e-5f;
};

// Writes y (N, C) and stat (N, 2) f32 = {mean, rstd}; x (N, C), of the residual; w, b (C).
void layernorm_forward(Stream& s, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b, const NormRule& rule = {});

// Adds to dx (N, C), the gradient of the residual stream that x belongs to, and to dw, db (C) f32, each unless it is
// empty, in an order that does not depend on the number of threads. x (N, C) in dx's dtype; dy (N, C), w (C); stat as
// saved.
void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w,
                        const NormRule& rule = {});

// y = x + dropout(h + h_b) and ln = layernorm(y), from y as it is stored. Writes y, ln (N, C) and stat (N, 2) f32; x
// (N, C) in y's dtype; h (N, C); h_b, w, b (C), h_b empty where the branch has no bias.
void residual_layernorm_forward(Stream& s, Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w,
                                Tensor b, const Dropout& d, const NormRule& rule = {});

// The adjoint: layernorm_backward of dln, where dx (N, C) holds the gradient of y on entry and that of x on return;
// then dh (N, C) = dropout(dx) and dh_b (C) f32 += sum_n dh, unless it is empty, both from dx before rounding. Without
// dropout dh may be dx, if it has its type. dw, db accumulate, unless they are empty; y (N, C) in dx's dtype; dln (N,
// C), w (C); stat as saved.
void residual_layernorm_backward(Stream& s, Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln,
                                 Tensor y, Tensor stat, Tensor w, const Dropout& d, const NormRule& rule = {});

namespace cpu {
void layernorm_forward(Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b, const NormRule& rule);
void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w,
                        const NormRule& rule);
void residual_layernorm_forward(Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w, Tensor b,
                                const NormRule& rule, const Dropout& d);
void residual_layernorm_backward(Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln, Tensor y,
                                 Tensor stat, Tensor w, const NormRule& rule, const Dropout& d);
}  // namespace cpu
namespace cuda {
void layernorm_forward(Queue queue, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b, const NormRule& rule);
void layernorm_backward(Queue queue, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w,
                        const NormRule& rule);
void residual_layernorm_forward(Queue queue, Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w,
                                Tensor b, const NormRule& rule, const Dropout& d);
void residual_layernorm_backward(Queue queue, Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln,
                                 Tensor y, Tensor stat, Tensor w, const NormRule& rule, const Dropout& d);
}  // namespace cuda

}  // namespace megalith
