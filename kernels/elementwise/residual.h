// The end of a residual branch:  y = x + dropout(h + b).  The bias belongs to the residual and not to the projection,
// because with tensor parallelism h is a sum over ranks and b must be added once.
#pragma once

#include "kernels/elementwise/dropout.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// y = x + dropout(h + b).
struct ResidualForward {
  static constexpr const char* name = "residual_forward";
  Tensor y;    // (N, C), written; may be h's memory, if it has its type
  Tensor x;    // (N, C) in y's dtype, f32 or that of h
  Tensor h;    // (N, C); f32, bf16 or f16
  Tensor b{};  // (C); empty: none
  Dropout dropout{};
};

// dh = dropout(dy), db += sum_n dh; the gradient of x is dy.
struct ResidualBackward {
  static constexpr const char* name = "residual_backward";
  Tensor dh;    // (N, C), written; may be dy without dropout, if it has its type
  Tensor db{};  // (C) f32, accumulates; may be empty
  Tensor dy;    // (N, C), f32 or in dh's dtype
  Dropout dropout{};
};

void launch(Stream& s, const ResidualForward& op);
void launch(Stream& s, const ResidualBackward& op);
namespace cpu {
void run(Queue& queue, const ResidualForward& op);
void run(Queue& queue, const ResidualBackward& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const ResidualForward& op);
void run(Queue queue, const ResidualBackward& op);
}  // namespace cuda

}  // namespace megalith
