// RMSNorm over the features of each head of q and k, with one weight for all heads of q and one for those of k:
//   rstd = 1 / sqrt(sum(x^2) / D + epsilon), y = x * rstd * w,
// and, with g = dy * w and xhat = x * rstd,  dx = rstd * (g - xhat * sum(g * xhat) / D), dw = sum dy * xhat.
// Sources: RMSNorm as in layernorm.h; of queries and keys, Henry et al., arXiv 2010.04245, and Qwen 3.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// f32, bf16 or f16.
struct HeadNormForward {
  static constexpr const char* name = "head_norm_forward";
  Tensor y;         // (N, (H + 2K) D), written: normed q and k, and a copy of v
  Tensor rstd;      // (N, H + K) f32, written
  Tensor x;         // like y, other memory
  Tensor q_w, k_w;  // (D)
  AttentionDims dims;
  float epsilon;
};

struct HeadNormBackward {
  static constexpr const char* name = "head_norm_backward";
  Tensor d;  // (N, (H + 2K) D), in place: the gradient of y on entry and that of x on return; dv is unchanged
  // (D) f32, accumulate sums over the local heads, in an order that does not depend on the number of threads; either
  // may be empty
  Tensor dq_w{}, dk_w{};
  Tensor x, rstd, q_w, k_w;  // as in the forward pass
  AttentionDims dims;
};

void launch(Stream& s, const HeadNormForward& op);
void launch(Stream& s, const HeadNormBackward& op);
namespace cpu {
void run(Queue& queue, const HeadNormForward& op);
void run(Queue& queue, const HeadNormBackward& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const HeadNormForward& op);
void run(Queue queue, const HeadNormBackward& op);
}  // namespace cuda

}  // namespace megalith
