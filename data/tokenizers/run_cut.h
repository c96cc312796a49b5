// Finds where a pre-token of any length may be cut so that its parts, merged separately, give the ids of the whole.
// This keeps a run of millions of letters, in which pretokenizer.h finds no cut, from being merged at once.
//
// The law: t1 t2 ... tn are the ids of a text if and only if each two neighbours are the ids of their own bytes. Merges
// inside a region happen in the same order whatever surrounds it, so the first merge across a boundary would also
// happen between the two neighbours by themselves. Hence the ids before a boundary are those of the bytes before it,
// and whatever follows the first W bytes, the ids of the whole have a boundary p within the last longest_token of them.
// A boundary c of the first W bytes is one of the whole if it is one of the first p bytes for all such p, that is if
// the id before it and the first id of bytes [c, p) do not merge. (Berglund and van der Merwe, "Formalizing BPE
// Tokenization", 2023, show that such a look-ahead is bounded.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizers/bpe_merger.h"

namespace megalith {

class RunCut {
 public:
  // Both must outlive this object.
  RunCut(const BpeVocabulary& vocabulary, const MergeTable& table);

  // Returns a cut of a pre-token that begins with `run`, or that ends at most end_known_late bytes before the end of
  // `run`, and the `ids` of the bytes before the cut. The cut is before a whole character that is not an apostrophe, so
  // that the rest splits into the same pre-tokens. Returns 0 if it finds no cut, as when tokens are longer than
  // longest_token.
  size_t find(std::string_view run, std::vector<int32_t>& ids) const;

  static constexpr size_t longest_token = 512, end_known_late = 4;

 private:
  bool is_safe(std::string_view run, size_t cut, int32_t before, BpeMerger& merger) const;

  const BpeVocabulary& vocabulary_;
  const MergeTable& table_;
  size_t longest_ = 0;
};

}  // namespace megalith
