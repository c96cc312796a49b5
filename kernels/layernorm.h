// LayerNorm over the last dimension, epsilon 1e-5:
//   mean = sum(x) / C, rstd = 1 / sqrt(sum((x - mean)^2) / C + epsilon), xhat = (x - mean) * rstd, y = xhat * w + b
// and with g = dy * w:
//   dx = rstd * (g - sum(g) / C - xhat * sum(g * xhat) / C), dw = sum_n dy * xhat, db = sum_n dy.
// Source: Ba, Kiros, Hinton, Layer Normalization, arXiv 1607.06450.
//
// Where a residual branch ends before the norm of the next, both are one op, and both adjoints are: each row is read
// once for the two.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/dropout.h"

namespace megalith {

// y (N, C) and stat (N, 2) f32 = {mean, rstd} written; x (N, C); w, b (C). y, x, w, b share f32, bf16 or f16.
void layernorm_forward(Stream& s, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);

// dx (N, C) accumulates (it is the gradient of the residual stream that x is part of); dw, db (C) f32 accumulate,
// summed in an order that does not depend on the number of threads. dy, x (N, C), w (C) in dx's dtype; stat as saved.
void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);

// y = x + dropout(h + h_b) and ln = layernorm(y), of y as it is stored. y, ln (N, C) and stat (N, 2) f32 written;
// x, h (N, C); h_b, w, b (C); f32, bf16 or f16 throughout.
void residual_layernorm_forward(Stream& s, Tensor y, Tensor ln, Tensor stat, Tensor x, Tensor h, Tensor h_b, Tensor w,
                                Tensor b, const Dropout& d);

// Its adjoint: layernorm_backward of dln, where dx (N, C) holds the gradient of y on entry and that of x on return;
// then dh (N, C) = dropout(dx), written, and dh_b (C) f32 += sum_n dh, both of dx before it is rounded. Without dropout
// dh may be dx, and nothing more is written. dw, db accumulate; dln, y (N, C), w (C) in dx's dtype; stat as saved.
void residual_layernorm_backward(Stream& s, Tensor dx, Tensor dh, Tensor dh_b, Tensor dw, Tensor db, Tensor dln,
                                 Tensor y, Tensor stat, Tensor w, const Dropout& d);

// The implementations; arguments are as above and were checked.
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
