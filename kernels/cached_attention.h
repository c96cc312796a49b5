// Attention of new tokens over keys and values that are kept, as text is generated token by token. A layer keeps them
// in one tensor, cache (2 * places, H, T, D): of each place, which a sequence has for itself, the keys; then of each
// place the values. H is the local number of heads, T the positions there is room for.
//
// Row n of a pass is the token at position rows[n][1] of the sequence at place rows[n][0]; rows (N, 2) i32. A cost may
// not depend on data: `longest` positions are assumed to be read for each row, and no row may stand at one beyond.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace megalith {

// The keys and values of each row are written to its place and position; qkv (N, 3*H*D): row = q of all heads, then k,
// then v. No two rows have the same place and position. f32, bf16 or f16.
void keep_keys_values(Stream& s, Tensor cache, Tensor qkv, Tensor rows);

// out (N, H*D) written: of each head, with q of qkv and k, v of the row's place in the cache,
//   S[j] = q . k_j / sqrt(D) for j <= position,  out = sum_j softmax(S)[j] v_j.
// Sums are in f32, and a row's do not depend on the other rows.
void cached_attention(Stream& s, Tensor out, Tensor qkv, Tensor cache, Tensor rows, int64_t longest);

// The implementations; arguments are as above and were checked. On the CPU a row that is not in the cache is an Error;
// a GPU writes NaN for it, and keeps nothing of it.
namespace cpu {
void keep_keys_values(Tensor cache, Tensor qkv, Tensor rows);
void cached_attention(Tensor out, Tensor qkv, Tensor cache, Tensor rows, int64_t longest);
}  // namespace cpu
namespace cuda {
void keep_keys_values(Queue queue, Tensor cache, Tensor qkv, Tensor rows);
void cached_attention(Queue queue, Tensor out, Tensor qkv, Tensor cache, Tensor rows, int64_t longest);
}  // namespace cuda

}  // namespace megalith
