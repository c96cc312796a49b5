#include "data/samples/indexed_dataset_writer.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace megalith {

namespace format = indexed_dataset;

namespace {

constexpr size_t buffered_tokens = 256 << 10;
constexpr int64_t lengths_at_once = 64 << 10;

std::unique_ptr<File> reopen(const std::string& path, int64_t bytes) {
  auto file = std::make_unique<File>(path, File::Use::append);
  CHECK(file->size() >= bytes,
        "{} has {} bytes, but had {} when its prepare was killed; remove the folder {} and start over", path,
        file->size(), bytes, path.substr(0, path.rfind('/')));
  if (file->size() > bytes) file->resize(bytes);
  return file;
}

void for_each_length(const File& lengths, int64_t documents, const std::function<void(int64_t tokens)>& f) {
  std::vector<int64_t> some;
  for (int64_t done = 0; done < documents; done += static_cast<int64_t>(some.size())) {
    some.resize(static_cast<size_t>(std::min(documents - done, lengths_at_once)));
    lengths.read(done * int64_t{sizeof(int64_t)}, some.data(), static_cast<int64_t>(some.size() * sizeof(int64_t)));
    for (const int64_t length : some) f(length);
  }
}

// Appends values of any type to a file, in large writes.
class Appender {
 public:
  explicit Appender(File& file) : file_(file) {}
  template <class T>
  void add(const T& value) {
    buffer_.append(reinterpret_cast<const char*>(&value), sizeof value);
    if (buffer_.size() >= (1 << 20)) flush();
  }
  void flush() {
    if (!buffer_.empty()) file_.append(buffer_);
    buffer_.clear();
  }

 private:
  File& file_;
  std::string buffer_;
};

}  // namespace

IndexedDatasetWriter::Mark IndexedDatasetWriter::mark_of(const std::string& prefix) {
  const File lengths(prefix + ".lengths", File::Use::read);
  Mark mark{0, lengths.size() / int64_t{sizeof(int64_t)}, 0};
  for_each_length(lengths, mark.documents, [&](int64_t tokens) { mark.tokens += tokens; });
  return mark;
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, int64_t vocab_size, int64_t longest_sequence,
                                           const Mark& from, bool masked)
    : prefix_(prefix),
      element_(format::element_for(vocab_size)),
      longest_sequence_(longest_sequence),
      mark_(from),
      bin_(reopen(prefix + ".bin", (from.tokens + from.open_tokens) * format::bytes_of(element_))),
      lengths_(reopen(prefix + ".lengths", from.documents * int64_t{sizeof(int64_t)})),
      mask_(masked ? reopen(prefix + ".mask", from.tokens + from.open_tokens) : nullptr),
      flushed_tokens_(from.tokens + from.open_tokens),
      flushed_documents_(from.documents) {}

void IndexedDatasetWriter::add(std::span<const int32_t> ids, std::span<const uint8_t> counts) {
  CHECK(counts.size() == (mask_ ? ids.size() : 0), "{} tokens and {} marks of a {} file of tokens", ids.size(),
        counts.size(), mask_ ? "masked" : "plain");
  counts_.insert(counts_.end(), counts.begin(), counts.end());
  mark_.open_tokens += static_cast<int64_t>(ids.size());
  if (element_ == format::Element::int32)
    wide_.insert(wide_.end(), ids.begin(), ids.end());
  else
    narrow_.insert(narrow_.end(), ids.begin(), ids.end());
  if (std::max(wide_.size(), narrow_.size()) >= buffered_tokens) flush();
}

void IndexedDatasetWriter::end_document() {
  new_lengths_.push_back(mark_.open_tokens);
  mark_ = {mark_.tokens + mark_.open_tokens, mark_.documents + 1, 0};
}

void IndexedDatasetWriter::drop_document() {
  flush();
  mark_.open_tokens = 0;
  flushed_tokens_ = mark_.tokens;  // flushed bytes are never overwritten: an earlier mark may need them
}

void IndexedDatasetWriter::flush() {
  const auto write = [](File& file, int64_t& done, auto& values) {
    using T = typename std::remove_reference_t<decltype(values)>::value_type;
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    if (bytes > 0) file.write(done * static_cast<int64_t>(sizeof(T)), values.data(), bytes);
    done += static_cast<int64_t>(values.size());
    values.clear();
  };
  if (int64_t flushed = flushed_tokens_; mask_) write(*mask_, flushed, counts_);
  if (element_ == format::Element::int32)
    write(*bin_, flushed_tokens_, wide_);
  else
    write(*bin_, flushed_tokens_, narrow_);
  write(*lengths_, flushed_documents_, new_lengths_);
}

IndexedDatasetWriter::Mark IndexedDatasetWriter::sync() {
  flush();
  bin_->sync();
  lengths_->sync();
  if (mask_) mask_->sync();
  if (!std::exchange(names_are_synced_, true)) sync_folder(prefix_.substr(0, prefix_.rfind('/')));
  return mark_;
}

void IndexedDatasetWriter::finish() {
  flush();
  const int64_t bytes = mark_.tokens * format::bytes_of(element_);
  if (bin_->size() > bytes) bin_->resize(bytes);
  bin_->sync();
  if (mask_ && mask_->size() > mark_.tokens) mask_->resize(mark_.tokens);
  if (mask_) mask_->sync();
  write_index();
}

void IndexedDatasetWriter::write_index() {
  // All but the last of a document's sequences have this length.
  const auto for_each_sequence = [&](const std::function<void(int32_t tokens)>& f) {
    for_each_length(*lengths_, mark_.documents, [&](int64_t tokens) {
      for (int64_t left = tokens; left > 0; left -= longest_sequence_)
        f(static_cast<int32_t>(std::min(left, longest_sequence_)));
    });
  };
  uint64_t num_sequences = 0;
  for_each_length(*lengths_, mark_.documents,
                  [&](int64_t tokens) { num_sequences += static_cast<uint64_t>(num_sequences_of(tokens)); });

  NewFile idx(prefix_ + ".idx", {.replace = true});
  Appender out(idx);
  out.add(format::magic);
  out.add(format::version);
  out.add(element_);
  out.add(num_sequences);
  out.add(static_cast<uint64_t>(mark_.documents + 1));
  for_each_sequence([&](int32_t tokens) { out.add(tokens); });
  int64_t pointer = 0;
  for_each_sequence([&](int32_t tokens) {
    out.add(pointer);
    pointer += int64_t{tokens} * format::bytes_of(element_);
  });
  int64_t bound = 0;
  out.add(bound);
  for_each_length(*lengths_, mark_.documents, [&](int64_t tokens) { out.add(bound += num_sequences_of(tokens)); });
  out.flush();
  idx.publish();
}

}  // namespace megalith
