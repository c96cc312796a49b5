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

// db (O) += sum_n dy, f32; dy (N, O) f32, bf16 or f16.
void linear_backward_bias(Stream& s, Tensor db, Tensor dy);

// dw (O, I) += dy^T x or, unless `add`, = dy^T x, and what it held is not read; f32. dy (N, O), x (N, I) both f32, bf16
// or f16. And linear_backward_bias, unless db is empty: an op and a pass over dy of its own, but for the shapes whose
// table (kernels/gemm_table.h) says that the library's product is faster with these sums.
void linear_backward_weight(Stream& s, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add = true);

// The implementations; arguments are as above and were checked.
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
// Whether the product of the weight's gradient is to sum the bias's as well: only then may it be given db.
bool sums_bias_gradient(const Queue& queue, Tensor dw, Tensor dy, Tensor x, bool add);
void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add);
// db += the floats at the beginning of the workspace.
void finish_bias_gradient(Queue queue, Tensor db);
}  // namespace cuda

}  // namespace megalith
