// Finds where the documents of a batch begin, for attention that keeps them apart (kernels/attention/attention.h) and
// for positions that count in each of them (kernels/embedding/embedding.h).
#pragma once

#include <vector>

#include "kernels/tensor/tensor.h"

namespace megalith {

// Host: starts (B, T) i32 written from tokens (B*T) i32: of each token the place in its sequence where its document
// begins, or the sequence, if the document began before it. The token that ends a document is its last, so that the
// next begins behind it: as in Megatron-LM's get_ltor_masks_and_position_ids (megatron/training/utils.py), under
// reset_attention_mask and reset_position_ids, whose loss counts all targets, as ours does.
void find_documents(Tensor starts, Tensor tokens, int32_t end_of_text);

// The same for documents that are known to begin at these places of a row as well, in their order.
void begin_documents(Tensor starts, int64_t row, const std::vector<int64_t>& places);

}  // namespace megalith
