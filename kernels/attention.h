// Causal self-attention, the middle of the branch, for each sequence b and head h:
//   S[i, j] = q_i . k_j / sqrt(D) for j <= i,  P = softmax over j,  out_i = sum_j dropout(P)[i, j] v_j
// with lse_i = log(sum_j exp(S[i, j])) saved, and in the backward pass, with P = exp(S - lse):
//   delta_i = out_i . dout_i,  dP = dropout(dout v^T),  dS = P * (dP - delta),
//   dq = dS k / sqrt(D),  dk = dS^T q / sqrt(D),  dv = dropout(P)^T dout.
// Neither pass holds T*T numbers: scores exist in tiles. Sums are in f32; in 16 bits the CUDA ops round the weights of
// the sums (dropout(P) and dS) for the tensor cores, as all of their factors.
//
// Documents that share a sequence may be kept apart: starts (B, T) i32 names for each query the first key that it sees,
// which is the first of its document, so that j goes from starts[b, i] to i. 0 <= starts[b, i] <= i, and no query
// starts before the one ahead of it. What is computed of a document is then what would be were it alone, but for the
// order of sums; tiles that no query sees are not computed. An empty tensor: every query sees all keys up to its own.
//
// A row of dS sums to 0, so the gradient of anything added to all keys alike (the key's bias) is 0. Rounding leaves a
// residue, of which AdamW would make steps of full size; in f32 the backward pass takes it from the diagonal of dS.
// Source: Dao et al., FlashAttention, arXiv 2205.14135; FlashAttention-2, arXiv 2307.08691.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/dropout.h"

namespace megalith {

struct AttentionDims {
  int64_t B, T, H, D;      // H is the local number of heads; any D, e.g. 64, 112, 128
  int64_t first_head = 0;  // global index of the first local head: dropout's mask goes by the global one
};

// out (N, H*D) and lse (B, H, T) f32 written; qkv (N, 3*H*D): row = q of all heads, then k, then v. f32, bf16 or f16.
void attention_forward(Stream& s, Tensor out, Tensor lse, Tensor qkv, const AttentionDims& dims, const Dropout& d,
                       Tensor starts = {});

// dqkv (N, 3*H*D) written; delta (B, H, T) f32 is scratch; dout, out (N, H*D), lse, qkv, starts as in the forward pass.
void attention_backward(Stream& s, Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        const AttentionDims& dims, const Dropout& d, Tensor starts = {});

// The implementations; arguments are as above and were checked, but for what is in `starts`: there the CPU refuses what
// is none, and what a GPU then computes means nothing.
namespace cpu {
void attention_forward(Tensor out, Tensor lse, Tensor qkv, Tensor starts, const AttentionDims& dims, const Dropout& d);
void attention_backward(Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv, Tensor starts,
                        const AttentionDims& dims, const Dropout& d);
}  // namespace cpu
namespace cuda {
void attention_forward(Queue queue, Tensor out, Tensor lse, Tensor qkv, Tensor starts, const AttentionDims& dims,
                       const Dropout& d);
void attention_backward(Queue queue, Tensor dqkv, Tensor delta, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                        Tensor starts, const AttentionDims& dims, const Dropout& d);
}  // namespace cuda

}  // namespace megalith
