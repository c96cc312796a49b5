#include "data/corpus/byte_source.h"

#include "data/corpus/array_lines.h"

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples/known_files.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

constexpr size_t buffer_bytes = 256 << 10;

// The file's own bytes. The first of them can be inspected before they are read.
class RawBytes final : public ByteSource {
 public:
  explicit RawBytes(const TextInput& input) : file_(input.path, File::Use::stream), is_plain_(input.is_plain) {
    head_.resize(6);
    size_t size = 0;
    while (const int64_t n = file_.read_next(head_.data() + size, static_cast<int64_t>(head_.size() - size)))
      size += static_cast<size_t>(n);
    head_.resize(size);
  }

  size_t read(char* out, size_t most) override {
    if (at_ < static_cast<int64_t>(head_.size())) {
      const size_t n = head_.copy(out, most, static_cast<size_t>(at_));
      at_ += static_cast<int64_t>(n);
      return n;
    }
    const int64_t n = file_.read_next(out, static_cast<int64_t>(most));
    at_ += n;
    return static_cast<size_t>(n);
  }

  void skip(int64_t bytes) override {
    if (!is_plain_ || at_ + bytes < static_cast<int64_t>(head_.size())) return ByteSource::skip(bytes);
    file_.seek(at_ += bytes);
  }

  int64_t consumed() const override { return at_; }
  const std::string& path() const { return file_.path(); }
  std::string_view head() const { return head_; }

 private:
  File file_;
  bool is_plain_;
  std::string head_;
  int64_t at_ = 0;
};

// The common interface of the gzip, zstd and xz decoders.
class Decompressed : public ByteSource {
 public:
  explicit Decompressed(std::unique_ptr<RawBytes> raw) : raw_(std::move(raw)), buffer_(buffer_bytes) {}

  size_t read(char* out, size_t most) final {
    for (;;) {
      if (in_.empty() && !raw_ended_) {
        in_ = {buffer_.data(), raw_->read(buffer_.data(), buffer_.size())};
        raw_ended_ = in_.empty();
      }
      if (raw_ended_ && in_.empty() && between_streams_) return 0;
      const size_t before = in_.size(), n = step(in_, out, most);
      if (n > 0) return n;
      if (before > 0 && in_.size() == before) fail_damaged("it does not continue");
      CHECK(before > 0 || !raw_ended_ || between_streams_,
            "{} ends at byte {}, in the middle of its compressed data: it is truncated; copy or make it again", path(),
            raw_->consumed());
    }
  }
  int64_t consumed() const final { return raw_->consumed() - static_cast<int64_t>(in_.size()); }

 protected:
  // Consumes from the front of `in` and returns the bytes written; updates between_streams_. An empty `in` flushes.
  virtual size_t step(std::string_view& in, char* out, size_t most) = 0;

  const std::string& path() const { return raw_->path(); }
  [[noreturn]] void fail_damaged(std::string_view why) const {
    FAIL("{} cannot be decompressed at byte {}: {}; copy or make it again", path(), consumed(), why);
  }

  bool between_streams_ = false;  // a stream is complete, and the next has not begun

 private:
  std::unique_ptr<RawBytes> raw_;
  std::vector<char> buffer_;
  std::string_view in_;
  bool raw_ended_ = false;
};

class Gzip final : public Decompressed {
 public:
  explicit Gzip(std::unique_ptr<RawBytes> raw) : Decompressed(std::move(raw)) {
    CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "no memory to decompress {}", path());
  }
  ~Gzip() override { inflateEnd(&stream_); }

 private:
  size_t step(std::string_view& in, char* out, size_t most) override {
    if (between_streams_ && !in.empty()) {
      inflateReset(&stream_);
      between_streams_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(most, 1 << 30));
    const uInt room = stream_.avail_out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    in.remove_prefix(in.size() - stream_.avail_in);
    if (status == Z_STREAM_END)
      between_streams_ = true;
    else if (status != Z_OK && status != Z_BUF_ERROR)
      fail_damaged(stream_.msg ? stream_.msg : "damaged data");
    return room - stream_.avail_out;
  }

  z_stream stream_{};
};

class Zstd final : public Decompressed {
 public:
  explicit Zstd(std::unique_ptr<RawBytes> raw) : Decompressed(std::move(raw)), stream_(ZSTD_createDStream()) {
    CHECK(stream_ != nullptr, "no memory to decompress {}", path());
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }

 private:
  size_t step(std::string_view& in, char* out, size_t most) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out, most, 0};
    const size_t left = ZSTD_decompressStream(stream_, &to, &from);
    in.remove_prefix(from.pos);
    if (ZSTD_isError(left)) fail_damaged(ZSTD_getErrorName(left));
    between_streams_ = left == 0;
    return to.pos;
  }

  ZSTD_DStream* stream_;
};

class Xz final : public Decompressed {
 public:
  explicit Xz(std::unique_ptr<RawBytes> raw) : Decompressed(std::move(raw)) {
    CHECK(lzma_stream_decoder(&stream_, uint64_t{256} << 20, LZMA_CONCATENATED) == LZMA_OK,
          "no memory to decompress {}", path());
  }
  ~Xz() override { lzma_end(&stream_); }

 private:
  size_t step(std::string_view& in, char* out, size_t most) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(out);
    stream_.avail_out = most;
    // It learns that no stream follows only from the end of the file.
    const lzma_ret status = lzma_code(&stream_, in.empty() ? LZMA_FINISH : LZMA_RUN);
    in.remove_prefix(in.size() - stream_.avail_in);
    if (status == LZMA_STREAM_END)
      between_streams_ = true;
    else if (status == LZMA_MEMLIMIT_ERROR)
      fail_damaged("its window takes more than 256 MiB of memory, so compress it with xz -9 at most");
    else if (status != LZMA_OK && status != LZMA_BUF_ERROR)
      fail_damaged("damaged data");
    return most - stream_.avail_out;
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
};

constexpr std::string_view gzip_begins = "\x1f\x8b", zstd_begins = "\x28\xb5\x2f\xfd",
                           xz_begins = {
                               "\xfd"
                               "7zXZ\0",
                               6};

std::string_view compression_in_bytes(std::string_view head) {
  if (head.starts_with(gzip_begins)) return ".gz";
  if (head.starts_with(zstd_begins)) return ".zst";
  if (head.starts_with(xz_begins)) return ".xz";
  return "";
}

}  // namespace

void ByteSource::skip(int64_t bytes) {
  std::vector<char> ignored(buffer_bytes);
  while (bytes > 0) {
    const size_t n = read(ignored.data(), static_cast<size_t>(std::min<int64_t>(bytes, buffer_bytes)));
    if (n == 0) return;
    bytes -= static_cast<int64_t>(n);
  }
}

namespace {

std::unique_ptr<ByteSource> open_decompressed(const TextInput& input) {
  auto raw = std::make_unique<RawBytes>(input);
  const std::string_view found = compression_in_bytes(raw->head()), named = compression_in_name(input.path);
  CHECK(named.empty() || named == found,
        "{} does not begin as a {} file does; copy it again, or give it a name without {} if it is not compressed",
        input.path, named, named);
  if (found == ".gz") return std::make_unique<Gzip>(std::move(raw));
  if (found == ".zst") return std::make_unique<Zstd>(std::move(raw));
  if (found == ".xz") return std::make_unique<Xz>(std::move(raw));
  return raw;
}

// Some bytes, followed by those of a source.
class WithHead final : public ByteSource {
 public:
  WithHead(std::string head, std::unique_ptr<ByteSource> rest) : head_(std::move(head)), rest_(std::move(rest)) {}

  size_t read(char* out, size_t most) override {
    if (at_ == head_.size()) return rest_->read(out, most);
    const size_t n = head_.copy(out, most, at_);
    advance(n);
    return n;
  }
  void skip(int64_t bytes) override {
    const auto n = std::min(bytes, static_cast<int64_t>(head_.size() - at_));
    advance(static_cast<size_t>(n));
    if (bytes > n) rest_->skip(bytes - n);
  }
  int64_t consumed() const override { return rest_->consumed(); }

 private:
  void advance(size_t bytes) {
    at_ += bytes;
    if (at_ < head_.size()) return;
    head_ = {};  // frees it: it may be long
    at_ = 0;
  }

  std::string head_;
  size_t at_ = 0;
  std::unique_ptr<ByteSource> rest_;
};

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Returns whether a text begins with a line that is a JSON object: {"NAME": ..., with } if the end of the line is
// present.
bool begins_as_json_lines(std::string_view head) {
  const size_t end = head.find('\n');
  std::string_view line = head.substr(0, end);
  const auto pass_blanks = [&] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  const auto pass = [&](char c) {
    pass_blanks();
    if (!line.starts_with(c)) return false;
    line.remove_prefix(1);
    return true;
  };
  const size_t last = line.find_last_not_of(" \t\r");
  if (end != std::string_view::npos && (last == std::string_view::npos || line[last] != '}')) return false;
  if (!pass('{') || !pass('"')) return false;
  while (!line.empty() && line[0] != '"') line.remove_prefix(std::min<size_t>(line[0] == '\\' ? 2 : 1, line.size()));
  return pass('"') && pass(':');
}

// Refuses JSON, whose markup would be trained on.
void check_is_text(std::string_view head, const TextInput& input) {
  if (input.json_lines || !begins_as_json_lines(head)) return;
  CHECK(input.is_plain,
        "{} begins with a JSON object, so it is JSON lines: name the field of the text, as in --field text. If it is a "
        "text with this beginning, put an empty line before it",
        input.name());
  FAIL(
      "{} begins with a JSON object, so it is JSON lines, which are read from files named .jsonl: rename it, or pipe "
      "it into megalith prepare --text - --field text. If it is a text with this beginning, put an empty line before "
      "it",
      input.name());
}

}  // namespace

std::unique_ptr<ByteSource> with_head(std::string head, std::unique_ptr<ByteSource> rest) {
  return std::make_unique<WithHead>(std::move(head), std::move(rest));
}

std::unique_ptr<ByteSource> open_bytes(const TextInput& input) {
  auto bytes = open_decompressed(input);
  std::string head(known_head_bytes, '\0');
  size_t found = 0;
  while (const size_t n = found < head.size() ? bytes->read(&head[found], head.size() - found) : 0) found += n;
  head.resize(found);
  check_holds_text(head, input.path, input.json_lines);
  if (head.starts_with(byte_order_mark)) head.erase(0, byte_order_mark.size());
  check_is_text(head, input);
  const size_t first = head.find_first_not_of(" \t\r\n");
  const bool is_array = input.json_lines && first != std::string::npos && head[first] == '[';
  auto all = head.empty() ? std::move(bytes) : with_head(std::move(head), std::move(bytes));
  return is_array ? elements_as_lines(std::move(all), input.name()) : std::move(all);
}

}  // namespace megalith
