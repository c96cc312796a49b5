// Token and position embedding of GPT-2:  y[b, t] = wte[tokens[b, t]] + wpe[t].
//
// Where documents that share a sequence are kept apart, each has positions of its own: starts (B, T) i32 says where in
// the sequence the document of a token begins, 0 <= starts[b, t] <= t, and wpe[t - starts[b, t]] is added. An empty
// tensor: all begin with the sequence.
//
// The table may be one part of the vocabulary (vocabulary.h). Then a row whose token is held elsewhere is all 0, its
// position not added either: for each row one part has the whole result, so the sum of y over the parts is the whole y,
// exactly. No sum is taken here.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/vocabulary.h"

namespace megalith {

// y (N, C) written; tokens (N) i32, each in [0, part.total); wte (at least part.count, C); wpe (at least T, C). N is a
// multiple of T; row n stands at position n % T. f32, bf16 or f16 throughout.
void embedding_forward(Stream& s, Tensor y, Tensor tokens, Tensor wte, Tensor wpe, int64_t T, VocabularyPart part,
                       Tensor starts = {});

// dwte (at least part.count, C) f32 and dwpe (at least T, C) f32 accumulate; dy (N, C) in f32, bf16 or f16, the whole
// gradient of the sum. dwte receives the rows whose token is held here, and nothing in its padding; dwpe receives all
// rows, so that every part has the same, complete dwpe. Deterministic for any thread count.
void embedding_backward(Stream& s, Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, int64_t T, VocabularyPart part,
                        Tensor starts = {});

// The implementations; arguments are as above and were checked.
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
