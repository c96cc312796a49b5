// LayerNorm over the last dimension, epsilon 1e-5:
//   mean = sum(x) / C, rstd = 1 / sqrt(sum((x - mean)^2) / C + epsilon), xhat = (x - mean) * rstd, y = xhat * w + b
// and with g = dy * w:
//   dx = rstd * (g - sum(g) / C - xhat * sum(g * xhat) / C), dw = sum_n dy * xhat, db = sum_n dy.
// Source: Ba, Kiros, Hinton, Layer Normalization, arXiv 1607.06450.
//
// A residual branch and the next norm are also one op, and so are their adjoints: each row is read once for both.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/dropout.h"

namespace megalith {

// Writes y (N, C) and stat (N, 2) f32 = {mean, rstd}; x (N, C); w, b (C). y, x, w, b share f32, bf16 or f16.
void layernorm_forward(Stream& s, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);

// Adds to dx (N, C), the gradient of the residual stream that x belongs to, and to dw, db (C) f32, in an order that
// does not depend on the number of threads. dy, x (N, C), w (C) in dx's dtype; stat as saved.
void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);

// y = x + dropout(h + h_b) and ln = layernorm(y), from y as it is stored. Writes y, ln (N, C) and stat (N, 2) f32; x, h
// (N, C); h_b, w, b (C); f32, bf16 or f16 throughout.
void residual_layernorm_forward(Stream& s, Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w,
                                Tensor b, const Dropout& d);

// The adjoint: layernorm_backward of dln, where dx (N, C) holds the gradient of y on entry and that of x on return;
// then dh (N, C) = dropout(dx) and dh_b (C) f32 += sum_n dh, both from dx before rounding. Without dropout dh may be
// dx. dw, db accumulate; dln, y (N, C), w (C) in dx's dtype; stat as saved.
void residual_layernorm_backward(Stream& s, Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln,
                                 Tensor y, Tensor stat, Tensor w, const Dropout& d);

namespace cpu {
void layernorm_forward(Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);
void layernorm_backward(Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);
void residual_layernorm_forward(Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w, Tensor b,
                                const Dropout& d);
void residual_layernorm_backward(Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln, Tensor y,
                                 Tensor stat, Tensor w, const Dropout& d);
}  // namespace cpu
namespace cuda {
void layernorm_forward(Queue queue, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);
void layernorm_backward(Queue queue, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);
void residual_layernorm_forward(Queue queue, Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w,
                                Tensor b, const Dropout& d);
void residual_layernorm_backward(Queue queue, Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln,
                                 Tensor y, Tensor stat, Tensor w, const Dropout& d);
}  // namespace cuda

}  // namespace megalith
