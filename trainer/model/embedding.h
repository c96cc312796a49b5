// The bottom of the model: x = dropout(wte[token] + wpe[position]).
#pragma once

#include <span>

#include "trainer/model/edge.h"

namespace megalith {

// Weights in the compute dtype, or gradients in f32.
struct EmbeddingWeights {
  Tensor wte;  // (V, C), also the head's
  Tensor wpe;  // (context, C)

  static EmbeddingWeights bind(std::span<const Tensor> t);
};

// x (N, C) written; tokens (N) i32, sequences of T.
void embed(const Context& c, const EmbeddingWeights& w, Tensor tokens, int64_t T, Tensor x);

// dw accumulates; dx (N, C) is used up.
void embed_backward(const Context& c, const EmbeddingWeights& dw, Tensor tokens, int64_t T, Tensor dx);

}  // namespace megalith
