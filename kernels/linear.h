// A linear layer, weights stored (out, in):  y = x w^T + b.  GEMMs come from a library; sums are in f32. Before and
// after a GELU the two are one op. In backward a library may do both in one pass; in forward it may not, since a layer
// that computes the GELU again, from what is stored of its input, must get the same bits.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace megalith {

// y (N, O) written; x (N, I); w (O, I); b (O), or an empty tensor for none. All f32, all bf16 or all f16.
void linear_forward(Stream& s, Tensor y, Tensor x, Tensor w, Tensor b);

// h (N, O) = x w^T + b, and y (N, O) = gelu(h) of h as it is stored: gelu_forward's bits. Both written, the rest as
// above.
void linear_gelu_forward(Stream& s, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);

// dx (N, I) = dy w, written; dy (N, O); w (O, I). All f32, all bf16 or all f16.
void linear_backward_input(Stream& s, Tensor dx, Tensor dy, Tensor w);

// The same where x = gelu(h): dh (N, I) = (dy w) * gelu'(h), written; h (N, I).
void linear_backward_input_gelu(Stream& s, Tensor dh, Tensor dy, Tensor w, Tensor h);

// dw (O, I) += dy^T x or, unless `add`, = dy^T x, and what it held is not read; db (O) += sum_n dy, unless empty; both
// f32. dy (N, O), x (N, I) both f32, bf16 or f16.
void linear_backward_weight(Stream& s, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add = true);

// The implementations; arguments are as above and were checked.
namespace cpu {
class Gemm;
void linear_forward(Gemm& gemm, Tensor y, Tensor x, Tensor w, Tensor b);
void linear_backward_input(Gemm& gemm, Tensor dx, Tensor dy, Tensor w);
void linear_gelu_forward(Gemm& gemm, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);
void linear_backward_input_gelu(Gemm& gemm, Tensor dh, Tensor dy, Tensor w, Tensor h);
void linear_backward_weight(Gemm& gemm, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add);
}  // namespace cpu
namespace cuda {
void linear_forward(Queue queue, Tensor y, Tensor x, Tensor w, Tensor b);
void linear_backward_input(Queue queue, Tensor dx, Tensor dy, Tensor w);
void linear_gelu_forward(Queue queue, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b);
void linear_backward_input_gelu(Queue queue, Tensor dh, Tensor dy, Tensor w, Tensor h);
void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add);
// out (C) f32 += the sums of the columns of x (N, C).
void add_column_sums(Queue queue, Tensor out, Tensor x);
}  // namespace cuda

}  // namespace megalith
