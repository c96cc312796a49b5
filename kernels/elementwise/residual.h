// The end of a residual branch:  y = x + dropout(h + b).  The bias belongs to the residual and not to the projection,
// because with tensor parallelism h is a sum over ranks and b must be added once.
#pragma once

#include "kernels/elementwise/dropout.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// Writes y (N, C); x (N, C) in y's dtype, f32 or that of h; h (N, C) and b (C), or empty for none, f32, bf16 or f16. y
// may be h's memory, if it has its type.
void residual_forward(Stream& s, Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d);

// Writes dh (N, C) = dropout(dy); db (C) f32 += sum_n dh, unless it is empty. The gradient of x is dy (N, C), f32 or in
// dh's dtype. Without dropout dh may be dy, if it has its type.
void residual_backward(Stream& s, Tensor dh, Tensor db, Tensor dy, const Dropout& d);

namespace cpu {
void residual_forward(Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d);
void residual_backward(Tensor dh, Tensor db, Tensor dy, const Dropout& d);
}  // namespace cpu
namespace cuda {
void residual_forward(Queue queue, Tensor y, Tensor x, Tensor h, Tensor b, const Dropout& d);
void residual_backward(Queue queue, Tensor dh, Tensor db, Tensor dy, const Dropout& d);
}  // namespace cuda

}  // namespace megalith
