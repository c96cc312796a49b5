// A linear layer, weights stored (out, in):  y = x w^T + b.  GEMMs come from a library; sums are in f32. A GELU before
// or after the layer is part of the op. In backward a library may fuse the two; in forward it may not, since
// recomputing the GELU from its stored input must give the same bits.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// Writes y (N, O); x (N, I); w (O, I); b (O), or empty for none. All f32, all bf16 or all f16.
void linear_forward(Stream& s, Tensor y, Tensor x, Tensor w, Tensor b);

// Writes h (N, O) = x w^T + b, and y (N, O) = gelu(h) from h as it is stored: gelu_forward's bits.
void linear_gelu_forward(Stream& s, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);

// Writes dx (N, I) = dy w; dy (N, O); w (O, I). All f32, all bf16 or all f16.
void linear_backward_input(Stream& s, Tensor dx, Tensor dy, Tensor w);

// Writes dh (N, I) = (dy w) * gelu'(h), where x = gelu(h); h (N, I).
void linear_backward_input_gelu(Stream& s, Tensor dh, Tensor dy, Tensor w, Tensor h);

// db (O) += sum_n dy, f32; dy (N, O) f32, bf16 or f16.
void linear_backward_bias(Stream& s, Tensor db, Tensor dy);

// dw (O, I) += dy^T x, or unless `add` = dy^T x without reading dw; f32. dy (N, O), x (N, I) both f32, bf16 or f16.
// Also linear_backward_bias unless db is empty: as an op of its own, except for shapes whose table
// (kernels/linear/gemm_table.h) says that the fused product is faster.
void linear_backward_weight(Stream& s, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add = true);

namespace cpu {
class Gemm;
void linear_forward(Gemm& gemm, Tensor y, Tensor x, Tensor w, Tensor b);
void linear_backward_input(Gemm& gemm, Tensor dx, Tensor dy, Tensor w);
void linear_gelu_forward(Gemm& gemm, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);
void linear_backward_input_gelu(Gemm& gemm, Tensor dh, Tensor dy, Tensor w, Tensor h);
void linear_backward_bias(Tensor db, Tensor dy);
void linear_backward_weight(Gemm& gemm, Tensor dw, Tensor dy, Tensor x, bool add);
}  // namespace cpu
namespace cuda {
void linear_forward(Queue queue, Tensor y, Tensor x, Tensor w, Tensor b);
void linear_backward_input(Queue queue, Tensor dx, Tensor dy, Tensor w);
void linear_gelu_forward(Queue queue, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);
void linear_backward_input_gelu(Queue queue, Tensor dh, Tensor dy, Tensor w, Tensor h);
void linear_backward_bias(Queue queue, Tensor db, Tensor dy);
// Returns whether to fuse the bias gradient into the weight gradient's product: only then may that be given db.
bool sums_bias_gradient(const Queue& queue, Tensor dw, Tensor dy, Tensor x, bool add);
void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add);
// db += the floats at the beginning of the workspace.
void finish_bias_gradient(Queue queue, Tensor db);
}  // namespace cuda

}  // namespace megalith
