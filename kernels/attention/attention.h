// Causal self-attention. For each sequence b and head h:
//   S[i, j] = q_i . k_j / sqrt(D) for j <= i,  P = softmax over j,  out_i = sum_j dropout(P)[i, j] v_j
// with lse_i = log(sum_j exp(S[i, j])) saved, and in the backward pass, with P = exp(S - lse):
//   delta_i = out_i . dout_i,  dP = dropout(dout v^T),  dS = P * (dP - delta),
//   dq = dS k / sqrt(D),  dk = dS^T q / sqrt(D),  dv = dropout(P)^T dout.
// Neither pass stores T*T numbers: scores exist in tiles only. Sums are in f32; in 16 bits the CUDA ops round the
// weights of the sums, dropout(P) and dS, for the tensor cores.
//
// A document mask is given by starts (B, T) i32: the first key that each query sees, which is the first of its
// document, so that j goes from starts[b, i] to i. Each row of starts ascends, with 0 <= starts[b, i] <= i. A document
// then gets the result that it would get alone, up to the order of sums; tiles that no query sees are skipped. An empty
// tensor means no mask beside the causal one.
//
// A row of dS sums to 0, so the gradient of anything added to all keys (the key's bias) is 0. Rounding leaves a
// residue, which AdamW would turn into full-size steps; in f32 the backward pass subtracts it from the diagonal of dS.
// Grouped heads: Ainslie et al., GQA, arXiv 2305.13245.
// Source: Dao et al., FlashAttention, arXiv 2205.14135; FlashAttention-2, arXiv 2307.08691.
#pragma once

#include "kernels/elementwise/dropout.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

struct AttentionDims {
  int64_t B, T, H, D;           // H is the local number of heads; any D, e.g. 64, 112, 128
  int64_t first_head = 0;       // global index of the first local head, which dropout's mask uses
  int64_t key_value_heads = 0;  // K, local, which divides H; 0: H

  int64_t kv() const { return key_value_heads > 0 ? key_value_heads : H; }
  int64_t group() const { return H / kv(); }  // heads that share a key-value head, neighbours
  int64_t qkv_width() const { return (H + 2 * kv()) * D; }
};

struct AttentionForward {
  static constexpr const char* name = "attention_forward";
  Tensor out;  // (N, H*D), written
  Tensor lse;  // (B, H, T) f32, written
  // (N, (H + 2K) * D): row = q of all heads, then k and v of the K key-value heads; head h reads key-value head
  // h / (H / K). f32, bf16 or f16.
  Tensor qkv;
  AttentionDims dims;
  Dropout dropout{};
  Tensor starts{};
};

struct AttentionBackward {
  static constexpr const char* name = "attention_backward";
  Tensor dqkv;                 // (N, (H + 2K) * D), written
  Tensor delta;                // (B, H, T) f32, scratch
  Tensor dout, out, lse, qkv;  // dout (N, H*D); the rest as in the forward pass
  AttentionDims dims;
  Dropout dropout{};
  Tensor starts{};
  Tensor scratch{};  // (attention_backward_scratch() of Hopper) f32; other GPUs and CPUs take an empty one, too
};

// Returns how many numbers in f32 the backward pass needs for sums on this chip: 0 where no block adds to those of
// another.
int64_t attention_backward_scratch(const cuda::Chip& chip, DType dtype, const AttentionDims& dims);

// Arguments are checked, except the contents of `starts`: the CPU refuses invalid ones, a GPU computes garbage from
// them.
void launch(Stream& s, const AttentionForward& op);
void launch(Stream& s, const AttentionBackward& op);
namespace cpu {
void run(Queue& queue, const AttentionForward& op);
void run(Queue& queue, const AttentionBackward& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const AttentionForward& op);
void run(Queue queue, const AttentionBackward& op);
}  // namespace cuda

}  // namespace megalith
