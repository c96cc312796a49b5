// Token and position embedding of GPT-2:  y[b, t] = wte[tokens[b, t]] + wpe[t].
#pragma once

#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace megalith {

// y (N, C) written; tokens (N) i32, each in [0, V); wte (V, C); wpe (at least T, C). N is a multiple of T; row n stands
// at position n % T. f32 or bf16 throughout.
void embedding_forward(Stream& s, Tensor y, Tensor tokens, Tensor wte, Tensor wpe, int64_t T);

// dwte (V, C) f32 and dwpe (at least T, C) f32 accumulate; dy (N, C) in f32 or bf16. Deterministic for any thread
// count.
void embedding_backward(Stream& s, Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, int64_t T);

}  // namespace megalith
