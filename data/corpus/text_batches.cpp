#include "data/corpus/text_batches.h"

#include <simdjson.h>

#include <algorithm>

#include "data/tokenizers/whole_characters.h"
#include "kernels/system/check.h"
#include "kernels/system/process_limits.h"

namespace megalith {

namespace {

constexpr size_t bytes_of_read = 256 << 10;
}  // namespace

int64_t Corpus::disk_bytes() const {
  int64_t total = 0;
  for (const TextInput& input : inputs) {
    if (!input.is_plain) return 0;
    total += input.size;
  }
  return total;
}

std::string place_of(const Corpus& corpus, const TextPosition& position) {
  const TextInput& input = corpus.inputs[static_cast<size_t>(position.input)];
  if (!input.json_lines) return fmt::format("{}, from byte {} on,", input.name(), position.offset);
  return fmt::format("{}, line {} (at byte {})", input.name(), position.lines + 1, position.offset);
}

TextBatches::TextBatches(const Corpus& corpus, int64_t window_bytes, LastCut last_cut, const TextPosition& from)
    : corpus_(corpus), window_bytes_(window_bytes), last_cut_(std::move(last_cut)), position_(from) {
  for (int64_t i = 0; i < from.input; i++) consumed_before_ += corpus.inputs[static_cast<size_t>(i)].size;
}

bool TextBatches::open_next() {
  if (source_) {
    source_.reset();
    const TextInput& input = corpus_.inputs[static_cast<size_t>(position_.input)];
    check_unchanged(input);
    consumed_before_ += input.size;
    position_ = {.input = position_.input + 1};
  }
  if (refused_ || position_.input == static_cast<int64_t>(corpus_.inputs.size())) return false;
  refused_ = true;  // set before opening: after an exception another thread would wait for a second writer of a pipe
  source_ = corpus_.open(position_.input);
  refused_ = false;
  source_->skip(position_.offset);
  buffer_.clear();
  at_ = 0;
  ended_ = false;
  return true;
}

// Reads until this many bytes are buffered, or to the end.
void TextBatches::fill(int64_t bytes) {
  if (ended_ || static_cast<int64_t>(rest().size()) > bytes) return;
  buffer_.erase(0, std::exchange(at_, 0));
  while (!ended_ && static_cast<int64_t>(buffer_.size()) <= bytes) {
    const size_t size = buffer_.size(), most = std::max(bytes_of_read, static_cast<size_t>(bytes) + 1 - size);
    buffer_.resize(size + most);
    const size_t n = source_->read(buffer_.data() + size, most);
    buffer_.resize(size + n);
    ended_ = n == 0;
  }
}

bool TextBatches::next(TextBatch& batch) {
  return with_memory_for([this] { return place_of(corpus_, position_); }, [&] { return take_next(batch); });
}

bool TextBatches::take_next(TextBatch& batch) {
  for (;;) {
    if (!source_ && !open_next()) return false;
    pass_separators();
    fill(window_bytes_);
    // An unfinished document ends here, even if no byte of it is left.
    if (!rest().empty() || position_.in_document) break;
    if (!open_next()) return false;
  }
  if (corpus_.inputs[static_cast<size_t>(position_.input)].json_lines)
    next_lines(batch);
  else
    next_of_text(batch);
  return true;
}

// Before a document, skips empty ones.
void TextBatches::pass_separators() {
  const std::string& separator = corpus_.separator;
  if (separator.empty() || position_.in_document || corpus_.inputs[static_cast<size_t>(position_.input)].json_lines)
    return;
  for (;;) {
    fill(static_cast<int64_t>(separator.size()));
    if (!rest().starts_with(separator)) return;
    at_ += separator.size();
    position_.offset += static_cast<int64_t>(separator.size());
  }
}

void TextBatches::give(TextBatch& batch, TextBatch::Kind kind, size_t text_bytes, size_t with_separator) {
  batch.kind = kind;
  batch.text.clear();
  batch.text.reserve(text_bytes + simdjson::SIMDJSON_PADDING);
  batch.text.append(buffer_, at_, text_bytes);
  batch.begin = position_;
  if (kind == TextBatch::Kind::json_lines) position_.lines += std::count(batch.text.begin(), batch.text.end(), '\n');
  at_ += with_separator;
  position_.offset += static_cast<int64_t>(with_separator);
  batch.consumed = consumed_before_ + source_->consumed();
}

void TextBatches::next_lines(TextBatch& batch) {
  for (int64_t bytes = window_bytes_;; bytes *= 2) {
    fill(bytes);
    if (has_all(bytes)) {
      give(batch, TextBatch::Kind::json_lines, rest().size(), rest().size());
      break;
    }
    const size_t line_end = rest().substr(0, static_cast<size_t>(bytes)).rfind('\n');
    if (line_end != std::string_view::npos) {
      give(batch, TextBatch::Kind::json_lines, line_end + 1, line_end + 1);
      break;
    }
    const int64_t longest = corpus_.conversations ? longest_conversation : longest_line;
    CHECK(bytes < longest, "{} has more than {} bytes; a line holds one {}, so split it into several",
          place_of(corpus_, position_), longest, corpus_.conversations ? "conversation" : "document");
  }
  batch.end = position_;
}

void TextBatches::next_of_text(TextBatch& batch) {
  if (position_.in_document || !next_documents(batch)) next_part(batch);
  batch.end = position_;
}

// Takes whole documents, if the first one left ends within a window.
bool TextBatches::next_documents(TextBatch& batch) {
  const size_t separator = corpus_.separator.size();
  int64_t bytes = window_bytes_;
  if (corpus_.split.rule() == ValidationSplit::Rule::documents)
    bytes = std::max<int64_t>(bytes, ValidationSplit::hashed_bytes);
  fill(bytes);
  if (has_all(bytes)) {
    give(batch, TextBatch::Kind::documents, rest().size(), rest().size());
    return true;
  }
  const std::string_view window = rest().substr(0, static_cast<size_t>(bytes));
  size_t end = 0;
  while (separator > 0) {
    const size_t found = window.find(corpus_.separator, end);
    if (found == std::string_view::npos) break;
    end = found + separator;
  }
  if (end > 0) {
    give(batch, TextBatch::Kind::documents, end, end);
    return true;
  }
  position_.document_begin = position_.offset;
  position_.for_validation = corpus_.split.rule() == ValidationSplit::Rule::documents && corpus_.split.draws(window);
  return false;
}

// Takes the training part of a document whose end goes to the validation set, if that part ends within this many bytes.
bool TextBatches::next_before_split(TextBatch& batch, int64_t bytes) {
  if (corpus_.split.rule() != ValidationSplit::Rule::ends || position_.for_validation) return false;
  const auto known = corpus_.sizes.find({position_.input, position_.document_begin});
  const auto& path = corpus_.inputs[static_cast<size_t>(position_.input)].path;
  const int64_t given = position_.offset - position_.document_begin;
  CHECK(known != corpus_.sizes.end() && given <= corpus_.split.search_begin(known->second),
        "no document of the noted length begins at byte {} of {}; remove prepare.partial and prepare it again when no "
        "process writes to it",
        position_.document_begin, path);
  const int64_t size = known->second;
  if (given + bytes <= corpus_.split.search_begin(size)) return false;
  fill(corpus_.split.search_end(size) - given);
  const int64_t split = corpus_.split.split_of(size, [&](int64_t offset, char* out, int64_t count) {
    CHECK(rest().size() >= static_cast<size_t>(offset - given + count), "{} ends earlier than before; prepare it again",
          path);
    rest().copy(out, static_cast<size_t>(count), static_cast<size_t>(offset - given));
  });
  give(batch, TextBatch::Kind::part, static_cast<size_t>(split - given), static_cast<size_t>(split - given));
  batch.is_last = true;
  position_.for_validation = true;
  position_.in_document = split < size;
  return true;
}

void TextBatches::next_part(TextBatch& batch) {
  const size_t separator = corpus_.separator.size(), overlap = separator > 0 ? separator - 1 : 0;
  for (int64_t bytes = window_bytes_;; bytes *= 2) {
    if (next_before_split(batch, bytes)) return;
    fill(bytes + static_cast<int64_t>(overlap));
    const bool has_rest = has_all(bytes);
    const std::string_view window = rest().substr(0, static_cast<size_t>(bytes) + overlap);
    const size_t end = separator > 0 ? window.find(corpus_.separator) : std::string_view::npos;
    if (end != std::string_view::npos || has_rest) {
      if (end != std::string_view::npos)
        give(batch, TextBatch::Kind::part, end, end + separator);
      else
        give(batch, TextBatch::Kind::part, window.size(), window.size());
      batch.is_last = true;
      position_.in_document = position_.for_validation = position_.in_end = false;
      return;
    }
    // The possible beginning of a separator is kept for the next part.
    const size_t cut = last_cut_(whole_characters(window.substr(0, window.size() - std::min(overlap, window.size()))));
    CHECK(cut > 0 || bytes < longest_uncut,
          "{}, from byte {} on, has more than {} bytes without a place where it can be cut without changing its "
          "tokens: it is all letters, digits, signs or blanks, and the tokenizer has tokens that long, or it changes "
          "texts so that no place is known; insert spaces or line breaks, leave it out, or use another tokenizer "
          "(bytes cuts anywhere)",
          corpus_.inputs[static_cast<size_t>(position_.input)].name(), position_.offset, longest_uncut);
    if (cut == 0) continue;
    give(batch, TextBatch::Kind::part, cut, cut);
    batch.is_last = false;
    position_.in_document = true;
    position_.in_end = position_.for_validation && corpus_.split.rule() == ValidationSplit::Rule::ends;
    return;
  }
}

}  // namespace megalith
