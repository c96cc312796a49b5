// What part of a parameter a rank of a tensor-parallel group holds, and where its elements lie in the whole: pure
// functions of the parameter's split, the degree and the rank (Shoeybi et al., arXiv 1909.08053).
#pragma once

#include <vector>

#include "kernels/base/interval.h"
#include "kernels/elementwise.h"
#include "kernels/vocabulary.h"
#include "trainer/model/spec.h"

namespace megalith {

struct TensorRank {
  int64_t degree = 1, rank = 0;
};

// The local tensor: all of an unsplit parameter; of each row group its share of the rows, padded to the row multiple;
// or its share of the columns.
Shape local_shape(const ParamSpec& param, const TensorRank& tensor);

// Elements [local, local + elements.size()) of the flattened local tensor are the elements `elements` of the flattened
// columns `columns` of the whole parameter (a vector is one row).
struct Strip {
  int64_t local;
  Columns columns;
  Interval elements;
};

// The strips that make up `local`, ascending. Padding belongs to none.
std::vector<Strip> strips_of(const ParamSpec& param, const TensorRank& tensor, Interval local);

// The part of the vocabulary whose rows of the token table are here.
VocabularyPart vocabulary_part(const ParamSpec& table, const TensorRank& tensor);

}  // namespace megalith
