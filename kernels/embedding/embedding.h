// Token and position embedding of GPT-2:  y[b, t] = wte[tokens[b, t]] + wpe[t]. With a document mask each document has
// its own positions: starts (B, T) i32 is the start of each token's document in its sequence, 0 <= starts[b, t] <= t,
// and wpe[t - starts[b, t]] is added. Empty starts mean all zeros. A model with other positions (rotary.h) has an empty
// wpe, and nothing is added.
//
// The table may be one part of the vocabulary (vocabulary.h). A row whose token is not held is all 0, without its
// position: each row is nonzero in exactly one part, so summing y over the parts gives the exact whole y. The op does
// not sum.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"
#include "kernels/tensor/vocabulary.h"

namespace megalith {

// N is a multiple of T; row n is at position n % T.
struct EmbeddingForward {
  static constexpr const char* name = "embedding_forward";
  Tensor y;       // (N, C), written; f32 or the tables' type
  Tensor tokens;  // (N) i32, each in [0, part.total)
  Tensor wte;     // (at least part.count, C); f32, bf16 or f16
  Tensor wpe{};   // (at least T, C), or empty
  int64_t T;
  VocabularyPart part;
  Tensor starts{};  // (B, T) i32, or empty
};

// The bits do not depend on the number of threads.
struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  // Either gradient may be empty.
  Tensor dwte{};  // (at least part.count, C) f32: the rows whose tokens are held accumulate
  Tensor dwpe{};  // (at least T, C) f32: all rows accumulate, so that every part has the complete dwpe
  Tensor dy;      // (N, C), f32, bf16 or f16: the whole gradient
  Tensor tokens;
  int64_t T;
  VocabularyPart part;
  Tensor starts{};
};

void launch(Stream& s, const EmbeddingForward& op);
void launch(Stream& s, const EmbeddingBackward& op);
namespace cpu {
void run(Queue& queue, const EmbeddingForward& op);
void run(Queue& queue, const EmbeddingBackward& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const EmbeddingForward& op);
void run(Queue queue, const EmbeddingBackward& op);
}  // namespace cuda

}  // namespace megalith
