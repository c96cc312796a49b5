// RMSNorm over the features of each head of q and k, with one weight for all heads of q and one for those of k:
//   rstd = 1 / sqrt(sum(x^2) / D + epsilon), y = x * rstd * w,
// and, with g = dy * w and xhat = x * rstd,  dx = rstd * (g - xhat * sum(g * xhat) / D), dw = sum dy * xhat.
// Sources: RMSNorm as in layernorm.h; of queries and keys, Henry et al., arXiv 2010.04245, and Qwen 3.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// Writes y (N, (H + 2K) D), normed q and k and v as it is, and rstd (N, H + K) f32; x like y, other memory; q_w, k_w
// (D). f32, bf16 or f16.
void head_norm_forward(Stream& s, Tensor y, Tensor rstd, Tensor x, Tensor q_w, Tensor k_w, const AttentionDims& dims,
                       float epsilon);

// d (N, (H + 2K) D) holds the gradient of y on entry and that of x on return, dv as it is. Adds to dq_w, dk_w (D) f32,
// each unless it is empty, sums over the heads that are here, in an order that does not depend on the number of
// threads.
void head_norm_backward(Stream& s, Tensor d, Tensor dq_w, Tensor dk_w, Tensor x, Tensor rstd, Tensor q_w, Tensor k_w,
                        const AttentionDims& dims);

namespace cpu {
void head_norm_forward(Tensor y, Tensor rstd, Tensor x, Tensor q_w, Tensor k_w, const AttentionDims& dims,
                       float epsilon);
void head_norm_backward(Tensor d, Tensor dq_w, Tensor dk_w, Tensor x, Tensor rstd, Tensor q_w, Tensor k_w,
                        const AttentionDims& dims);
}  // namespace cpu
namespace cuda {
void head_norm_forward(Queue queue, Tensor y, Tensor rstd, Tensor x, Tensor q_w, Tensor k_w, const AttentionDims& dims,
                       float epsilon);
void head_norm_backward(Queue queue, Tensor d, Tensor dq_w, Tensor dk_w, Tensor x, Tensor rstd, Tensor q_w, Tensor k_w,
                        const AttentionDims& dims);
}  // namespace cuda

}  // namespace megalith
