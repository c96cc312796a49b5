// The bottom of the model: x = dropout(wte[token] + wpe[position]).
#pragma once

#include <span>

#include "kernels/vocabulary.h"
#include "trainer/model/edge.h"

namespace megalith {

// Weights in the compute dtype, or gradients in f32.
struct EmbeddingWeights {
  Tensor wte;  // (columns of the logits, C): the part of the vocabulary that is here, also the head's
  Tensor wpe;  // (context, C)
};

class Embedding {
 public:
  Embedding(int64_t T, const VocabularyPart& part) : T_(T), part_(part) {}

  // x (R, C) written; tokens (N) i32, sequences of T.
  void forward(const Context& c, const EmbeddingWeights& w, Tensor tokens, Tensor x) const;

  // The same of runs of tokens that stand anywhere: so many from that position on, one run after the other.
  struct Run {
    int64_t position, count;
  };
  void forward(const Context& c, const EmbeddingWeights& w, Tensor tokens, std::span<const Run> runs, Tensor x) const;

  // dw accumulates; dx (R, C) is used up.
  void backward(const Context& c, const EmbeddingWeights& dw, Tensor tokens, Tensor dx) const;

 private:
  int64_t T_;
  VocabularyPart part_;
};

}  // namespace megalith
