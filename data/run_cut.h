// Where a pre-token of any length may be cut so that its parts, merged each for itself, become the ids of the whole:
// what keeps a run of millions of letters, in which pretokenizer.h finds no cut, from being merged as one.
//
// The law. Ids t1 t2 ... tn are what a text becomes if and only if each two neighbours are what their own bytes become:
// merges inside a region happen in the same order whatever is around it, so the first merge across a boundary would
// happen between these two alone as well. Hence the ids up to a boundary are those of the bytes up to it, and whatever
// follows the first W bytes, the ids of the whole have a boundary p among the last longest_token of them. A boundary c
// of the first W bytes is one of the whole if it is one of the first p bytes for all such p, that is if the id before
// it and the first id of bytes [c, p) stay apart. (Berglund and van der Merwe, "Formalizing BPE Tokenization", 2023,
// show that such a look-ahead is bounded.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/bpe_merger.h"

namespace megalith {

class RunCut {
 public:
  // Both must outlive it.
  RunCut(const BpeVocabulary& vocabulary, const MergeTable& table);

  // Of a pre-token that begins with `run`, or ends at most end_known_late bytes before its end: a cut, and in `ids`
  // what the bytes before it become. It is before a whole character and before no apostrophe, so that the rest is cut
  // into pre-tokens as before. 0 if none is found, as where tokens are longer than longest_token.
  size_t find(std::string_view run, std::vector<int32_t>& ids) const;

  static constexpr size_t longest_token = 512, end_known_late = 4;

 private:
  bool is_safe(std::string_view run, size_t cut, int32_t before, BpeMerger& merger) const;

  const BpeVocabulary& vocabulary_;
  const MergeTable& table_;
  size_t longest_ = 0;
};

}  // namespace megalith
