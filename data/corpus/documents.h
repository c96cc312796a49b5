// Extracts the documents of a batch (text_batches.h): parses lines, splits texts at the separator, checks the bytes,
// and decides which documents go to the validation set. Empty documents and blank lines are skipped. If the end of each
// document goes to the validation set, that end and the part before it count as two documents here, and each is checked
// separately.
//
// A document is bad if it is not UTF-8, has a NUL byte or a lone surrogate, or if its line is not a JSON object or has
// no string in the field (of several, the last counts; a dotted field means nested objects). The reason names file,
// line and byte.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "data/conversations/chat_template.h"
#include "data/corpus/text_batches.h"

namespace megalith {

// The text of a conversation is its roles and contents in a form of our own, whose hash decides whether it goes to the
// validation set; its messages are given as well. Its line is bad if it has no messages, or a message without role or
// content.
struct Document {
  std::string_view text;                       // valid during the call
  std::span<const ChatMessage> messages = {};  // valid during the call
  std::string_view where = {};                 // of a conversation: its file and line, for messages
  bool for_validation = false;
  bool is_whole = true;                  // else a part; the parts of a document follow one another
  bool is_first = true, is_last = true;  // among the document's parts
  std::string bad = {};                  // why the document is bad; if set, text must not be used
};

// For one thread. The corpus must outlive it.
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
  void give_conversation(std::string_view line, const std::string& where, const Give& give);
  // Returns the fault of these bytes of a text, which begin at its `offset`, or "".
  std::string fault_of(std::string_view text, const TextBatch& batch, int64_t offset) const;
  void give_whole(std::string_view text, const Give& give) const;

  const Corpus& corpus_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace megalith
