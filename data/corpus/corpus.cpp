#include "data/corpus/corpus.h"

#include <algorithm>
#include <map>

#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr size_t kept_of_pipes = 64 << 20;

// Counts the documents of the texts, one text after the other, and notes their offsets and lengths.
class Survey {
 public:
  Survey(const std::string& separator, int64_t enough) : separator_(separator), enough_(enough) {}

  bool has_enough() const { return documents_ >= enough_; }
  const DocumentSizes& sizes() const { return sizes_; }

  void begin_input(int64_t input) {
    input_ = input;
    buffer_.clear();
    offset_ = begin_ = 0;
    line_is_blank_ = true;
  }

  void add_lines(std::string_view bytes) {
    for (const char byte : bytes) {
      if (byte == '\n')
        end_line();
      else if (line_is_blank_ && byte != ' ' && byte != '\t' && byte != '\r')
        line_is_blank_ = false;
    }
  }
  void end_line() {
    documents_ += !line_is_blank_;
    line_is_blank_ = true;
  }

  void add_text(std::string_view bytes) {
    if (separator_.empty()) {
      offset_ += static_cast<int64_t>(bytes.size());
      return;
    }
    buffer_ += bytes;
    size_t at = 0;
    for (size_t found; (found = buffer_.find(separator_, at)) != std::string::npos; at = found + separator_.size())
      end_document(offset_ + static_cast<int64_t>(found), separator_.size());
    // The last bytes may be the beginning of a separator.
    at = std::max(at, buffer_.size() - std::min(buffer_.size(), separator_.size() - 1));
    buffer_.erase(0, at);
    offset_ += static_cast<int64_t>(at);
  }
  void end_text() { end_document(offset_ + static_cast<int64_t>(buffer_.size()), 0); }

 private:
  void end_document(int64_t end, size_t separator) {
    if (end > begin_ && !has_enough()) {
      sizes_[{input_, begin_}] = end - begin_;
      documents_++;
    }
    begin_ = end + static_cast<int64_t>(separator);
  }

  const std::string& separator_;
  int64_t enough_, documents_ = 0;
  DocumentSizes sizes_;
  int64_t input_ = 0, offset_ = 0, begin_ = 0;  // offset_: of the buffer; begin_: of the document
  std::string buffer_;
  bool line_is_blank_ = true;
};

}  // namespace

Corpus reopen_corpus(const CorpusOptions& options, std::vector<TextInput> inputs, ValidationSplit::Rule rule,
                     DocumentSizes sizes) {
  Corpus corpus{.inputs = std::move(inputs),
                .separator = options.separator,
                .field = options.field,
                .conversations = options.conversations,
                .split = ValidationSplit(rule, options.validation_fraction),
                .sizes = std::move(sizes),
                .open = {}};
  corpus.open = [inputs = corpus.inputs](int64_t i) { return open_bytes(inputs[static_cast<size_t>(i)]); };
  return corpus;
}

Corpus open_corpus(const CorpusOptions& options) {
  CHECK(!options.texts.empty(), "no text to prepare; name at least one file");
  CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1,
        "a validation fraction of {}; it must be at least 0 and below 1, as 0.1 for a tenth",
        options.validation_fraction);
  std::vector<TextInput> inputs = find_texts(options.texts, options.pipes_are_json);
  if (options.validation_fraction == 0)
    return reopen_corpus(options, std::move(inputs), ValidationSplit::Rule::nothing, {});
  if (options.conversations) return reopen_corpus(options, std::move(inputs), ValidationSplit::Rule::documents, {});

  Survey survey(options.separator,
                static_cast<int64_t>(ValidationSplit::fewest_drawn / options.validation_fraction) + 1);
  bool is_known = true;
  auto replayed = std::make_shared<std::map<int64_t, std::unique_ptr<ByteSource>>>();
  std::string chunk(256 << 10, '\0');
  for (size_t i = 0; i < inputs.size() && is_known && !survey.has_enough(); i++) {
    const TextInput& input = inputs[i];
    auto source = open_bytes(input);
    std::string head;
    survey.begin_input(static_cast<int64_t>(i));
    size_t n = 1;
    while (n > 0 && is_known && !survey.has_enough()) {
      n = source->read(chunk.data(), chunk.size());
      const std::string_view bytes = std::string_view(chunk).substr(0, n);
      input.json_lines ? survey.add_lines(bytes) : survey.add_text(bytes);
      if (input.is_plain) continue;
      head += bytes;
      is_known = head.size() < kept_of_pipes;
    }
    if (n == 0) input.json_lines ? survey.end_line() : survey.end_text();
    if (!input.is_plain) {
      CHECK(!head.empty(), "the text {} is empty (0 bytes); leave it out", input.path);
      (*replayed)[static_cast<int64_t>(i)] = with_head(std::move(head), std::move(source));
    }
  }
  const bool few = is_known && !survey.has_enough();
  Corpus corpus =
      reopen_corpus(options, std::move(inputs), few ? ValidationSplit::Rule::ends : ValidationSplit::Rule::documents,
                    few ? survey.sizes() : DocumentSizes());
  corpus.open = [inputs = corpus.inputs, replayed](int64_t i) {
    if (const auto begun = replayed->find(i); begun != replayed->end()) return std::move(begun->second);
    return open_bytes(inputs[static_cast<size_t>(i)]);
  };
  return corpus;
}

}  // namespace megalith
