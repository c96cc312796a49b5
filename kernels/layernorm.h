// LayerNorm over the last dimension, epsilon 1e-5:
//   mean = sum(x) / C, rstd = 1 / sqrt(sum((x - mean)^2) / C + epsilon), xhat = (x - mean) * rstd, y = xhat * w + b
// and with g = dy * w:
//   dx = rstd * (g - sum(g) / C - xhat * sum(g * xhat) / C), dw = sum_n dy * xhat, db = sum_n dy.
// Source: Ba, Kiros, Hinton, Layer Normalization, arXiv 1607.06450.
#pragma once

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace megalith {

// y (N, C) and stat (N, 2) f32 = {mean, rstd} written; x (N, C); w, b (C). y, x, w, b share f32 or bf16.
void layernorm_forward(Stream& s, Tensor y, Tensor stat, Tensor x, Tensor w, Tensor b);

// dx (N, C) accumulates (it is the gradient of the residual stream that x is part of); dw, db (C) f32 accumulate,
// summed in an order that does not depend on the number of threads. dy, x (N, C), w (C) in dx's dtype; stat as saved.
void layernorm_backward(Stream& s, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor stat, Tensor w);

}  // namespace megalith
