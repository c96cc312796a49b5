#include "data/samples/token_stream.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "data/samples/token_formats.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {

std::string sibling_file(const std::string& path, const char* ending) {
  const std::string file = std::filesystem::path(path).replace_extension(ending).string();
  std::error_code absent;
  return file != path && std::filesystem::exists(file, absent) ? file : "";
}

}  // namespace

std::string index_path_of(const std::string& path) { return sibling_file(path, ".idx"); }
std::string mask_path_of(const std::string& path) { return sibling_file(path, ".mask"); }

void TokenSource::read_mask(int64_t, std::span<uint8_t>) const { FAIL("tokens without a mask: all count"); }

namespace {

// Several sources, joined.
class JoinedTokens final : public TokenSource {
 public:
  explicit JoinedTokens(std::vector<std::shared_ptr<const TokenSource>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) ends_.push_back(size() + part->size());
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  int32_t max_possible_token() const override {
    int32_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->max_possible_token());
    return most;
  }
  void read(int64_t begin, std::span<int32_t> out) const override { read_parts(begin, out, &TokenSource::read); }
  // A document ends at the end of its file.
  std::optional<int64_t> document_after(int64_t at) const override {
    const auto part = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    if (part == parts_.size()) return size();
    const int64_t first = ends_[part] - parts_[part]->size();
    const std::optional<int64_t> found = parts_[part]->document_after(at - first);
    return found ? std::optional(first + *found) : std::nullopt;
  }
  bool is_masked() const override { return parts_.front()->is_masked(); }
  void read_mask(int64_t begin, std::span<uint8_t> out) const override {
    read_parts(begin, out, &TokenSource::read_mask);
  }
  int32_t max_token(int64_t begin, int64_t end) const override {
    int32_t most = 0;
    for_each_part(begin, end, [&](const TokenSource& part, int64_t from, int64_t to) {
      most = std::max(most, part.max_token(from, to));
    });
    return most;
  }

 private:
  // Calls visit(part, from, to), in positions of the part.
  template <class Visit>
  void for_each_part(int64_t begin, int64_t end, Visit visit) const {
    for (auto i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin()); begin < end;
         i++) {
      const int64_t first = ends_[i] - parts_[i]->size(), until = std::min(end, ends_[i]);
      visit(*parts_[i], begin - first, until - first);
      begin = until;
    }
  }

  template <class T>
  void read_parts(int64_t begin, std::span<T> out, void (TokenSource::*get)(int64_t, std::span<T>) const) const {
    for_each_part(begin, begin + std::ssize(out), [&](const TokenSource& part, int64_t from, int64_t to) {
      const auto count = static_cast<size_t>(to - from);
      (part.*get)(from, out.first(count));
      out = out.subspan(count);
    });
  }

  std::vector<std::shared_ptr<const TokenSource>> parts_;
  std::vector<int64_t> ends_;
};

class TokensInMemory final : public TokenSource {
 public:
  TokensInMemory(std::vector<int32_t> tokens, std::vector<int64_t> begins)
      : tokens_(std::move(tokens)), begins_(std::move(begins)) {}

  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
  int32_t max_possible_token() const override { return max_token(0, size()); }
  void read(int64_t begin, std::span<int32_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }
  int32_t max_token(int64_t begin, int64_t end) const override {
    return *std::max_element(tokens_.begin() + begin, tokens_.begin() + end);
  }
  std::optional<int64_t> document_after(int64_t at) const override {
    const auto next = std::ranges::upper_bound(begins_, at);
    return next == begins_.end() ? size() : *next;
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<int64_t> begins_;
};

class FirstTokens final : public TokenSource {
 public:
  FirstTokens(std::shared_ptr<const TokenSource> all, int64_t size) : all_(std::move(all)), size_(size) {}

  int64_t size() const override { return size_; }
  int32_t max_possible_token() const override { return all_->max_possible_token(); }
  void read(int64_t begin, std::span<int32_t> out) const override { all_->read(begin, out); }
  int32_t max_token(int64_t begin, int64_t end) const override { return all_->max_token(begin, end); }
  std::optional<int64_t> document_after(int64_t at) const override {
    const std::optional<int64_t> found = all_->document_after(at);
    return found ? std::optional(std::min(*found, size_)) : std::nullopt;
  }
  bool is_masked() const override { return all_->is_masked(); }
  void read_mask(int64_t begin, std::span<uint8_t> out) const override { all_->read_mask(begin, out); }

 private:
  std::shared_ptr<const TokenSource> all_;
  int64_t size_;
};

}  // namespace

TokenStream TokenStream::first(int64_t tokens) const {
  CHECK(tokens >= 1 && tokens <= size(), "the first {} tokens of {}, which has {}", tokens, path_, size());
  TokenStream stream = *this;
  if (tokens < size()) stream.source_ = std::make_shared<FirstTokens>(source_, tokens);
  return stream;
}

TokenStream TokenStream::of(const std::string& name, std::vector<int32_t> tokens, std::vector<int64_t> begins) {
  CHECK(!tokens.empty(), "{} has no tokens", name);
  TokenStream stream;
  stream.path_ = name;
  stream.format_ = "tokens in memory";
  stream.documents_ = static_cast<int64_t>(begins.size()) + 1;
  stream.source_ = std::make_shared<TokensInMemory>(std::move(tokens), std::move(begins));
  return stream;
}

TokenStream TokenStream::open(const std::string& path) {
  TokenStream stream;
  stream.path_ = path;
  stream.files_ = {path};
  if (const std::string index = index_path_of(path); !index.empty()) {
    stream.source_ = open_megatron(path, index, stream.documents_);
    stream.format_ = stream.is_masked() ? "Megatron-LM's IndexedDataset with a mask" : "Megatron-LM's IndexedDataset";
    return stream;
  }
  CHECK(mask_path_of(path).empty() || std::filesystem::path(path).extension() != ".bin",
        "{} has a mask, {}, but no index, {}, which lists its examples; restore it, or prepare again", path,
        mask_path_of(path), std::filesystem::path(path).replace_extension(".idx").string());
  CHECK(!is_megatron_index(path), "{} is the index of a token file and has no tokens; name the file itself, {}", path,
        std::filesystem::path(path).replace_extension(".bin").string());
  if (has_llmc_header(path)) {
    stream.source_ = open_llmc(path);
    stream.format_ = "llm.c's tokens";
    return stream;
  }
  if (has_npy_magic(path)) {
    stream.source_ = open_npy(path);
    stream.format_ = "a numpy array";
    return stream;
  }
  stream.source_ = open_raw(path);
  stream.format_ = "raw uint16 tokens";
  stream.raw_ = true;
  return stream;
}

TokenStream TokenStream::open(const std::string& name, const std::vector<std::string>& paths) {
  CHECK(!paths.empty(), "{}: no files to open", name);
  TokenStream all;
  all.path_ = name;
  all.files_ = paths;
  all.documents_ = 0;
  std::vector<std::shared_ptr<const TokenSource>> parts;
  for (const std::string& path : paths) {
    const TokenStream one = open(path);
    CHECK(parts.empty() || one.is_masked() == parts.front()->is_masked(),
          "{}: {} has {}, and {} has {}; restore the .mask files that `megalith prepare` made, or name only one kind",
          name, paths.front(), parts.front()->is_masked() ? "a mask" : "no mask", path,
          one.is_masked() ? "one" : "none");
    parts.push_back(one.source_);
    all.raw_ = all.raw_ || one.raw_;
    if (all.format_.find(one.format_) == std::string::npos)
      all.format_ += (all.format_.empty() ? "" : " and ") + one.format_;
    const bool known = all.documents_ != unknown_documents && one.documents_ != unknown_documents;
    all.documents_ = known ? all.documents_ + one.documents_ : unknown_documents;
  }
  all.source_ = parts.size() == 1 ? parts.front() : std::make_shared<JoinedTokens>(std::move(parts));
  return all;
}

void TokenStream::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  CHECK(begin >= 0 && begin <= size() && count <= size() - begin, "tokens [{}, {}) of {}, which has {}", begin,
        begin + count, path_, size());
  source_->read(begin, out);
}

int32_t TokenStream::max_token(int64_t begin, int64_t end) const {
  CHECK(0 <= begin && begin < end && end <= size(), "the largest of tokens [{}, {}) of {}, which has {}", begin, end,
        path_, size());
  return source_->max_token(begin, end);
}

void TokenStream::read_mask(int64_t begin, std::span<uint8_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  CHECK(begin >= 0 && begin <= size() && count <= size() - begin, "the mask of tokens [{}, {}) of {}, which has {}",
        begin, begin + count, path_, size());
  source_->read_mask(begin, out);
  const auto bad = std::ranges::find_if(out, [](uint8_t counts) { return counts > 1; });
  CHECK(bad == out.end(), "the mask of {} has the byte {} for token {}, but bytes are 0 or 1; prepare again", path_,
        *bad, begin + (bad - out.begin()));
}

std::vector<int64_t> TokenStream::document_begins(int64_t begin, int64_t end) const {
  std::vector<int64_t> begins;
  int64_t last = begin;
  for (std::optional<int64_t> at = source_->document_after(begin); at && *at < end;
       at = source_->document_after(last)) {
    CHECK(*at > last,
          "by the index of {} a document begins at token {}, after token {}: it was rewritten during this run; prepare "
          "into another folder while a run reads this one",
          path_, *at, last);
    last = *at;
    begins.push_back(last - begin);
  }
  return begins;
}

}  // namespace megalith
