// SwiGLU:  y = silu(gate) * up,  silu(g) = g / (1 + exp(-g)).
// Source: Shazeer, GLU Variants Improve Transformer, arXiv 2002.05202.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/largest.h"

namespace megalith {

// All f32, all bf16 or all f16, as in SwigluBackward.
struct SwigluForward {
  static constexpr const char* name = "swiglu_forward";
  Tensor y;           // (N, F), written
  Tensor x;           // (N, 2F): row = gate of all features, then up
  Largest largest{};  // |y|
};

struct SwigluBackward {
  static constexpr const char* name = "swiglu_backward";
  Tensor dx;          // (N, 2F), written
  Tensor dy;          // (N, F)
  Tensor x;           // (N, 2F)
  Largest largest{};  // |dx|
};

void launch(Stream& s, const SwigluForward& op);
void launch(Stream& s, const SwigluBackward& op);
namespace cpu {
void run(Queue& queue, const SwigluForward& op);
void run(Queue& queue, const SwigluBackward& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const SwigluForward& op);
void run(Queue queue, const SwigluBackward& op);
}  // namespace cuda

}  // namespace megalith
