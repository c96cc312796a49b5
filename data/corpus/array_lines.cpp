#include "data/corpus/array_lines.h"

#include <algorithm>
#include <array>

#include "kernels/system/check.h"

namespace megalith {

namespace {

class ElementsAsLines final : public ByteSource {
 public:
  ElementsAsLines(std::unique_ptr<ByteSource> array, std::string path)
      : array_(std::move(array)), path_(std::move(path)) {}

  size_t read(char* out, size_t most) override {
    for (;;) {
      // Each byte becomes at most one.
      const size_t n = array_->read(buffer_.data(), std::min(most, buffer_.size()));
      CHECK(n > 0 || where_ == Where::behind, "{} begins an array but does not end it with ]; was it cut off?", path_);
      char* end = out;
      for (size_t i = 0; i < n; i++) end = take(buffer_[i], end);
      if (n == 0 || end > out) return static_cast<size_t>(end - out);
    }
  }
  int64_t consumed() const override { return array_->consumed(); }

 private:
  enum class Where { before, inside, behind };

  char* take(char c, char* out) {
    const bool is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (where_ == Where::behind) {
      *out = c;
      return out + 1;
    }
    if (where_ == Where::before) {
      if (c == '[') where_ = Where::inside;
      return out;
    }
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (depth_ == 0 && (c == ',' || c == ']')) {
      if (c == ']') where_ = Where::behind;
      *out = '\n';
      return out + 1;
    } else if (is_blank) {
      if (depth_ == 0) return out;
      c = ' ';
    } else {
      in_string_ = c == '"';
      depth_ += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    *out = c;
    return out + 1;
  }

  std::unique_ptr<ByteSource> array_;
  std::string path_;
  std::array<char, 64 << 10> buffer_;
  Where where_ = Where::before;
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> elements_as_lines(std::unique_ptr<ByteSource> array, std::string path) {
  return std::make_unique<ElementsAsLines>(std::move(array), std::move(path));
}

}  // namespace megalith
