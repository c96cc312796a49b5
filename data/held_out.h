// Which text is held out of training.
//
// Of a corpus of many documents, whole documents: those whose content hashes (XXH3 of their first 64 KiB) below the
// fraction of all hashes. So nothing that is added to a corpus moves a document, and equal documents go together. With
// few documents that would be none or any share, so then it is the end of each: of a document of n bytes the last v =
// ceil(n * fraction), and as many before them (up to v, and up to 64 KiB) as make it begin with a line; failing that,
// with a character, and nothing where none begins in them. At least one byte is left for training.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace megalith {

class HoldOut {
 public:
  enum class Rule { nothing, documents, ends };
  static constexpr size_t hashed_bytes = 64 << 10;
  // So that none is drawn once in 3000 corpora of just so many.
  static constexpr double fewest_drawn = 8;

  // Of what read(offset, out, bytes) reads, split_of may ask for at most 64 KiB before the end and 4 bytes after it.
  using Read = std::function<void(int64_t offset, char* out, int64_t bytes)>;

  HoldOut() = default;
  HoldOut(Rule rule, double fraction) : rule_(rule), fraction_(fraction) {}

  Rule rule() const { return rule_; }
  // By the hash; of a document or of its first hashed_bytes.
  bool draws(std::string_view document) const;

  // Of a document of which the end is held out, of `size` bytes, at least 1: where that begins, `size` if nowhere.
  int64_t split_of(int64_t size, const Read& read) const;
  int64_t split_of(std::string_view document) const;
  // The first byte that split_of reads. What lies before is trained on whatever it is.
  int64_t search_begin(int64_t size) const;
  // It reads none from here on.
  int64_t search_end(int64_t size) const;

 private:
  int64_t wanted(int64_t size) const;
  int64_t begin(int64_t size) const;

  Rule rule_ = Rule::nothing;
  double fraction_ = 0;
};

}  // namespace megalith
