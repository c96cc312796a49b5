// Attention of new tokens over a KV cache, for generation token by token. A layer has one tensor, cache (2 * slots, K,
// T, D): the keys of each slot, then their values. A sequence owns a slot. K is the local number of key-value heads, T
// the most positions. The local number of heads H, a multiple of K, follows from the width of qkv.
//
// Row n of a pass is the token at position rows[n][1] of the sequence in slot rows[n][0]; rows (N, 2) i32. A cost may
// not depend on data: each row is assumed to read `longest` positions, and every position must be below `longest`.
#pragma once

#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

// Stores the keys and values of each row at its slot and position. No two rows may have the same slot and position.
// f32, bf16 or f16.
struct KeepKeysValues {
  static constexpr const char* name = "keep_keys_values";
  Tensor cache;  // the rows' slots and positions are written
  Tensor qkv;    // (N, (H + 2K) * D): row = q of all heads, then k, then v
  Tensor rows;   // (N, 2) i32
};

// For each head h, with q from qkv and k, v of head h / (H / K) from the row's slot in the cache,
//   S[j] = q . k_j / sqrt(D) for j <= position,  out = sum_j softmax(S)[j] v_j.
// Sums are in f32, and a row's bits do not depend on the other rows.
struct CachedAttention {
  static constexpr const char* name = "cached_attention";
  Tensor out;  // (N, H*D), written
  Tensor qkv, cache, rows;
  int64_t longest;
};

// Arguments are checked. A row outside the cache is an Error on the CPU; a GPU writes NaN for it and stores nothing.
void launch(Stream& s, const KeepKeysValues& op);
void launch(Stream& s, const CachedAttention& op);
namespace cpu {
void run(Queue& queue, const KeepKeysValues& op);
void run(Queue& queue, const CachedAttention& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const KeepKeysValues& op);
void run(Queue queue, const CachedAttention& op);
}  // namespace cuda

}  // namespace megalith
