// The end of a residual branch:  y = x + dropout(h + b).  The bias belongs to the residual and not to the projection,
// because with tensor parallelism h is a sum over ranks and b must be added once.
#pragma once

#include "kernels/dropout.h"
#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace megalith {

// y (N, C) written; x, h (N, C); b (C); f32 or bf16 throughout. y may be h's memory.
void residual_forward(Stream& s, Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d);

// dh (N, C) = dropout(dy), written; db (C) f32 += sum_n dh. The gradient of x is dy itself. Without dropout dh = dy, so
// callers may pass the same tensor for both, and then only db is computed.
void residual_backward(Stream& s, Tensor dh, Tensor db, Tensor dy, const Dropout& d);

}  // namespace megalith
