// Token and position embedding of GPT-2:  y[b, t] = wte[tokens[b, t]] + wpe[t].
//
// With a document mask each document has its own positions: starts (B, T) i32 is the start of each token's document in
// its sequence, 0 <= starts[b, t] <= t, and wpe[t - starts[b, t]] is added. An empty tensor means all zeros.
//
// A model whose positions are elsewhere (rotary.h) has no wpe, an empty tensor, and nothing is added.
//
// The table may be one part of the vocabulary (vocabulary.h). A row whose token is not held is all 0, without its
// position: each row is nonzero in one part, so y summed over the parts is exactly the whole y. The op does not sum.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"
#include "kernels/tensor/vocabulary.h"

namespace megalith {

// Writes y (N, C); tokens (N) i32, each in [0, part.total); wte (at least part.count, C); wpe (at least T, C). N is a
// multiple of T; row n is at position n % T. The tables are f32, bf16 or f16, y is f32 or the same.
void embedding_forward(Stream& s, Tensor y, Tensor tokens, Tensor wte, Tensor wpe, int64_t T, VocabularyPart part,
                       Tensor starts = {});

// Adds to dwte (at least part.count, C) f32 the rows whose tokens are held, and to dwpe (at least T, C) f32 all rows,
// so that every part has the complete dwpe; each unless it is empty. dy (N, C) in f32, bf16 or f16 is the whole
// gradient. Threads change no bit.
void embedding_backward(Stream& s, Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, int64_t T, VocabularyPart part,
                        Tensor starts = {});

namespace cpu {
void embedding_forward(Tensor y, Tensor tokens, Tensor wte, Tensor wpe, Tensor starts, int64_t T,
                       const VocabularyPart& part);
void embedding_backward(Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, Tensor starts, int64_t T,
                        const VocabularyPart& part);
}  // namespace cpu
namespace cuda {
void embedding_forward(Queue queue, Tensor y, Tensor tokens, Tensor wte, Tensor wpe, Tensor starts, int64_t T,
                       const VocabularyPart& part);
void embedding_backward(Queue queue, Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, Tensor starts, int64_t T,
                        const VocabularyPart& part);
}  // namespace cuda

}  // namespace megalith
