// Finds where the documents of a batch begin, for attention that isolates them (kernels/attention/attention.h) and for
// positions that count within each (kernels/embedding/embedding.h).
#pragma once

#include <vector>

#include "kernels/tensor/tensor.h"

namespace megalith {

// Host: writes starts (B, T) i32 from tokens (B*T) i32: for each token the position in its sequence where its document
// begins, or 0 if the document began before the sequence. The token that ends a document is its last, and the next
// document begins after it: as in Megatron-LM's get_ltor_masks_and_position_ids (megatron/training/utils.py), under
// reset_attention_mask and reset_position_ids, whose loss counts all targets, as ours does.
void find_documents(Tensor starts, Tensor tokens, int32_t end_of_text);

// Adds documents that are known to begin at these places of a row, ascending.
void begin_documents(Tensor starts, int64_t row, const std::vector<int64_t>& places);

}  // namespace megalith
