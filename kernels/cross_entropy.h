// Softmax and cross-entropy over the vocabulary, fused:
//   losses[n] = log(sum_v exp(z[n, v])) - z[n, target],  dz[n, v] = scale * (softmax(z[n])[v] - [v == target]).
// A row whose target is -1 does not count: its loss and its gradient are 0.
#pragma once

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace megalith {

// losses (N) f32 written; logits (N, V) f32 or bf16, read only; targets (N) i32.
void cross_entropy_forward(Stream& s, Tensor losses, Tensor logits, Tensor targets);

// The same, and the logits are overwritten with their gradient: no second (N, V) tensor exists, nor an f32 copy.
void cross_entropy_forward_backward(Stream& s, Tensor losses, Tensor logits, Tensor targets, double scale);

}  // namespace megalith
