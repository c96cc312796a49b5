// The vocabulary, whole or divided: the tokens of a table's rows or of the columns of logits. Source of the division:
// Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
#pragma once

#include <cstdint>

#include "kernels/system/check.h"

namespace megalith {

// Rows of a table (or columns of logits) [0, count) are tokens [first, first + count) of `total`. Further rows and
// columns are padding: never looked up or scored, with gradient 0. A part may be all padding.
struct VocabularyPart {
  int64_t first = 0, count = 0, total = 0;

  bool whole() const { return count == total; }
  constexpr bool exists(int64_t token) const { return 0 <= token && token < total; }
  constexpr bool holds(int64_t token) const { return first <= token && token < first + count; }
  // Returns the token's row or column here, or -1 if it is not held.
  constexpr int64_t index_of(int64_t token) const { return holds(token) ? token - first : -1; }
  double share() const { return static_cast<double>(count) / static_cast<double>(total); }
};

inline VocabularyPart whole_vocabulary(int64_t V) { return {0, V, V}; }

// Checks that tensor `name` of op `op` has room for the part in its `room` rows or columns.
inline void expect_part(const char* op, const VocabularyPart& part, const char* name, int64_t room) {
  CHECK(part.total > 0 && part.first >= 0 && part.count >= 0 && part.first + part.count <= part.total,
        "{}: tokens [{}, {}) are outside a vocabulary of {}", op, part.first, part.first + part.count, part.total);
  CHECK(room >= part.count, "{}: {} has room for {} tokens, but its part of the vocabulary has {}", op, name, room,
        part.count);
}

}  // namespace megalith
