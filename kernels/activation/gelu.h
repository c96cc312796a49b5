// GELU:  y = x/2 * (1 + erf(x / sqrt(2))),  or, in the tanh form of GPT-2,
//   y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
// Source: Hendrycks, Gimpel, Gaussian Error Linear Units, arXiv 1606.08415.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// FLOPs an element.
constexpr double gelu_forward_flops = 16, gelu_backward_flops = 24;

enum class GeluForm : uint8_t { tanh, erf };

// Writes y; x has the same shape, f32, bf16 or f16.
void gelu_forward(Stream& s, Tensor y, Tensor x, GeluForm form = GeluForm::tanh);

// Writes dx = dy * gelu'(x); dx may be dy's memory.
void gelu_backward(Stream& s, Tensor dx, Tensor dy, Tensor x, GeluForm form = GeluForm::tanh);

namespace cpu {
void gelu_forward(Tensor y, Tensor x, GeluForm form = GeluForm::tanh);
void gelu_backward(Tensor dx, Tensor dy, Tensor x, GeluForm form = GeluForm::tanh);
}  // namespace cpu
namespace cuda {
void gelu_forward(Queue queue, Tensor y, Tensor x, GeluForm form = GeluForm::tanh);
void gelu_backward(Queue queue, Tensor dx, Tensor dy, Tensor x, GeluForm form = GeluForm::tanh);
}  // namespace cuda

}  // namespace megalith
