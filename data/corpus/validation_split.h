// Decides which text goes to the validation set.
//
// Of a corpus of many documents these are whole documents: those whose content hash (XXH3 of the first 64 KiB) is below
// the fraction of all hashes. Adding documents therefore moves no other, and equal documents stay together. Of few
// documents that could select none, or any share, so then the end of each is selected: of n bytes the last v = ceil(n *
// fraction), and as many before them (up to v, and up to 64 KiB) as make the part begin with a line or, failing that,
// with a character. If no character begins there, no part is selected. At least one byte is left for training.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace megalith {

class ValidationSplit {
 public:
  enum class Rule { nothing, documents, ends };
  static constexpr size_t hashed_bytes = 64 << 10;
  // Chosen so that one corpus in 3000 with exactly this many documents selects none.
  static constexpr double fewest_drawn = 8;

  // read(offset, out, bytes) reads at most 64 KiB before the end of the document and 4 bytes after it.
  using Read = std::function<void(int64_t offset, char* out, int64_t bytes)>;

  ValidationSplit() = default;
  ValidationSplit(Rule rule, double fraction) : rule_(rule), fraction_(fraction) {}

  Rule rule() const { return rule_; }
  // Decides by the hash of a document, or of its first hashed_bytes.
  bool draws(std::string_view document) const;

  // Returns where the validation part of a document of `size` >= 1 bytes begins; `size` if it has none.
  int64_t split_of(int64_t size, const Read& read) const;
  int64_t split_of(std::string_view document) const;
  // Returns the first byte that split_of reads. Earlier bytes belong to the training set in any case.
  int64_t search_begin(int64_t size) const;
  // Returns the end of the bytes that split_of reads.
  int64_t search_end(int64_t size) const;

 private:
  int64_t wanted(int64_t size) const;
  int64_t begin(int64_t size) const;

  Rule rule_ = Rule::nothing;
  double fraction_ = 0;
};

}  // namespace megalith
