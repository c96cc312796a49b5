// The documents of a batch of text_batches.h: lines are parsed, texts split at the separator, bytes looked at, held-out
// ones known. Empty documents and blank lines are none. Where the end of each document is held out, that and what is
// before are two documents of this page, of which one can be bad.
//
// A document is bad if it is not UTF-8, has a NUL byte or half of a surrogate pair, or if its line is no JSON object or
// has no string in the field (of several, the last counts; a field with dots, as data.text, lies in other objects).
// What is bad about it is said with file, line and byte.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/text_batches.h"

namespace megalith {

struct Document {
  std::string_view text;  // valid during the call
  bool held_out = false;
  bool is_whole = true;  // else a part; those of a document come one after the other
  bool is_last = true;
  std::string bad = {};  // what is bad about it, and then text is not to be used
};

// Belongs to one thread. The corpus must outlive it.
class DocumentReader {
 public:
  using Give = std::function<void(const Document&)>;

  explicit DocumentReader(const Corpus& corpus);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  void documents_of(const TextBatch& batch, const Give& give);

 private:
  struct Parser;
  void lines_of(const TextBatch& batch, const Give& give);
  // What is bad about these bytes of a text, which begin at `offset` of it; else empty.
  std::string fault_of(std::string_view text, const TextBatch& batch, int64_t offset) const;
  void give_whole(std::string_view text, const Give& give) const;

  const Corpus& corpus_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace megalith
