// Which part of a parameter a rank of a tensor-parallel group holds, and where its elements are in the whole: pure
// functions of the parameter's split, the degree and the rank (Shoeybi et al., arXiv 1909.08053).
#pragma once

#include <vector>

#include "kernels/tensor/columns.h"
#include "kernels/tensor/tensor_shard.h"
#include "kernels/tensor/vocabulary.h"
#include "trainer/model/spec.h"

namespace megalith {

struct TensorRank {
  int64_t degree = 1, rank = 0;
};

// Returns the shape of the local tensor: all of an unsplit parameter; of each row group its share of the rows, padded
// to the row multiple, or the local block; or its share of the columns. Error if neither ranks nor blocks are a
// multiple of the other.
Shape local_shape(const ParamSpec& param, const TensorRank& tensor);

// Elements of a tensor, or of a unit's flat memory, that `holders` neighbouring ranks of the tensor-parallel group all
// hold; this rank is number `holder` of them. If `partial`, the gradient that each of them computes is a term of a sum
// over all of them.
struct HeldRun {
  Interval elements{};
  int64_t holders = 1, holder = 0;
  bool partial = false;

  bool continues(const HeldRun& next) const {
    return elements.end == next.elements.begin && holders == next.holders && partial == next.partial;
  }
  bool operator==(const HeldRun&) const = default;
};

// Returns runs that tile the flattened local tensor, ascending. On a single rank none is partial.
std::vector<HeldRun> held_runs(const ParamSpec& param, const TensorRank& tensor);

// The part of a parameter that a rank's memory holds, starting at element `local`.
struct LocalShard {
  TensorShard shard;
  int64_t local;
};

// Returns the parts of the parameter in `elements` of the flattened local tensor, ascending. Padding is in none of
// them.
std::vector<LocalShard> shards_of(const ParamSpec& param, const TensorRank& tensor, Interval elements);

// The columns of a shard, for kernels.
Columns columns_of(const TensorShard& shard);

// Returns the part of the vocabulary whose rows of the embedding are local.
VocabularyPart vocabulary_part(const ParamSpec& table, const TensorRank& tensor);

}  // namespace megalith
