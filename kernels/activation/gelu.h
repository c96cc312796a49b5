// GELU:  y = x/2 * (1 + erf(x / sqrt(2))),  or, in the tanh form of GPT-2,
//   y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
// Source: Hendrycks, Gimpel, Gaussian Error Linear Units, arXiv 1606.08415.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/largest.h"

namespace megalith {

// FLOPs an element.
constexpr double gelu_forward_flops = 16, gelu_backward_flops = 24;

enum class GeluForm : uint8_t { tanh, erf };

// y = gelu(x); both of one shape, f32, bf16 or f16.
struct GeluForward {
  static constexpr const char* name = "gelu_forward";
  Tensor y;  // written
  Tensor x;
  GeluForm form = GeluForm::tanh;
  Largest largest{};  // |y|
};

// dx = dy * gelu'(x); all of one shape and type.
struct GeluBackward {
  static constexpr const char* name = "gelu_backward";
  Tensor dx;  // written; may be dy's memory
  Tensor dy, x;
  GeluForm form = GeluForm::tanh;
  Largest largest{};  // |dx|
};

void launch(Stream& s, const GeluForward& op);
void launch(Stream& s, const GeluBackward& op);
namespace cpu {
void run(Queue& queue, const GeluForward& op);
void run(Queue& queue, const GeluBackward& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const GeluForward& op);
void run(Queue queue, const GeluBackward& op);
}  // namespace cuda

}  // namespace megalith
