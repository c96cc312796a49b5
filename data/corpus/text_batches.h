// Reads a corpus in sequence as batches that can be processed independently. It only handles bytes; documents.h finds
// the documents, except one that is too long for a batch.
//
// A batch holds whole lines of a JSON lines file, whole documents of a text with their separators, or a part of a
// document longer than window_bytes, cut where the tokenizer reports that a cut changes no token. A batch has at most
// window_bytes, unless there is no place to cut: then it doubles, for JSON lines up to longest_line or
// longest_conversation, for texts up to longest_uncut. Beyond that, or without enough memory, is an Error with file and
// offset. The validation set does not depend on the batches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/corpus/byte_source.h"
#include "data/corpus/text_inputs.h"
#include "data/corpus/validation_split.h"

namespace megalith {

constexpr int64_t longest_line = int64_t{128} << 20, longest_uncut = int64_t{8} << 20;
// A conversation takes up to 31 times its bytes while it becomes an example.
constexpr int64_t longest_conversation = int64_t{16} << 20;

// Maps (input, offset) of each document of a text to its length.
using DocumentSizes = std::map<std::pair<int64_t, int64_t>, int64_t>;

// Where a JSON line has its conversation: messages in one field, or a prompt and its completion in two.
struct ConversationFields {
  std::string messages = "messages", prompt = {}, completion = {};
  bool are_pairs() const { return !prompt.empty(); }
};

struct Corpus {
  std::vector<TextInput> inputs;
  std::string separator;                            // between documents of a text; empty: a file is one document
  std::string field;                                // of a JSON line: its text
  std::optional<ConversationFields> conversations;  // instead of texts; all inputs are then JSON lines
  ValidationSplit split;
  DocumentSizes sizes;  // sizes of all documents in texts, if the ends of documents go to the validation set
  // Opens an input; a pipe can be opened once.
  std::function<std::unique_ptr<ByteSource>(int64_t input)> open;

  int64_t disk_bytes() const;  // 0 if there is a pipe
};

// A position between two batches. Offsets count decompressed bytes.
struct TextPosition {
  int64_t input = 0, offset = 0, lines = 0;
  // These parts of the document here have already been returned:
  bool in_document = false, for_validation = false;
  bool in_end = false;  // also parts of its validation end
  int64_t document_begin = 0;

  bool operator==(const TextPosition&) const = default;
};

// Returns "b.jsonl, line 2 (at byte 90)" or "a.txt, from byte 90 on,".
std::string place_of(const Corpus& corpus, const TextPosition& position);

struct TextBatch {
  enum class Kind { json_lines, documents, part };
  Kind kind = Kind::documents;
  std::string text;      // followed by simdjson's padding
  TextPosition begin;    // position of the text
  TextPosition end;      // position after it
  bool is_last = true;   // the last part of its document
  int64_t consumed = 0;  // bytes on the disk, of all inputs, read for this batch and all earlier ones
};

// For one thread at a time.
class TextBatches {
 public:
  using LastCut = std::function<size_t(std::string_view)>;  // as Tokenizer::last_cut

  // Starts at a batch's end position. The corpus must outlive it.
  TextBatches(const Corpus& corpus, int64_t window_bytes, LastCut last_cut, const TextPosition& from = {});
  bool next(TextBatch& batch);  // false at the end

 private:
  bool take_next(TextBatch& batch);
  bool open_next();
  void pass_separators();
  void fill(int64_t bytes);
  bool has_all(int64_t bytes) const { return ended_ && rest().size() <= static_cast<size_t>(bytes); }
  std::string_view rest() const { return std::string_view(buffer_).substr(at_); }
  void next_lines(TextBatch& batch);
  void next_of_text(TextBatch& batch);
  bool next_documents(TextBatch& batch);
  bool next_before_split(TextBatch& batch, int64_t bytes);
  void next_part(TextBatch& batch);
  void give(TextBatch& batch, TextBatch::Kind kind, size_t text_bytes, size_t with_separator);

  const Corpus& corpus_;
  int64_t window_bytes_;
  LastCut last_cut_;
  TextPosition position_;
  std::unique_ptr<ByteSource> source_;  // the open input at position_, or null
  std::string buffer_;                  // bytes not returned yet begin at at_
  size_t at_ = 0;
  bool refused_ = false;  // the input could not be opened
  bool ended_ = false;    // all of the input was read
  int64_t consumed_before_ = 0;
};

}  // namespace megalith
