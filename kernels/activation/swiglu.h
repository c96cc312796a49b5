// SwiGLU:  y = silu(gate) * up,  silu(g) = g / (1 + exp(-g)).
// Source: Shazeer, GLU Variants Improve Transformer, arXiv 2002.05202.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// Writes y (N, F); x (N, 2F): row = gate of all features, then up. f32, bf16 or f16 throughout.
void swiglu_forward(Stream& s, Tensor y, Tensor x);

// Writes dx (N, 2F) from dy (N, F) and x.
void swiglu_backward(Stream& s, Tensor dx, Tensor dy, Tensor x);

namespace cpu {
void swiglu_forward(Tensor y, Tensor x);
void swiglu_backward(Tensor dx, Tensor dy, Tensor x);
}  // namespace cpu
namespace cuda {
void swiglu_forward(Queue queue, Tensor y, Tensor x);
void swiglu_backward(Queue queue, Tensor dx, Tensor dy, Tensor x);
}  // namespace cuda

}  // namespace megalith
