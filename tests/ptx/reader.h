// Words, signs and declarations of PTX, read from left to right (PTX ISA, "Syntax", "Directives").
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/system/check.h"
#include "tests/ptx/ptx.h"

namespace megalith::ptx {

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
inline bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

// Reads words and signs from left to right, and counts lines.
class Reader {
 public:
  Reader(std::string_view file, std::string_view text, int line) : file_(file), text_(text), line_(line) {}
  bool done() {
    skip();
    return at_ == text_.size();
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail_here(fmt::format("expected '{}'", c));
  }
  // Letters, digits, _ $ %, and with `dotted` also '.' and "::".
  std::string_view word(bool dotted = false) {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && (in_word(text_[at_]) || (dotted && text_[at_] == '.'))) {
      at_++;
      if (dotted && text_.substr(at_, 2) == "::") at_ += 2;
    }
    if (begin == at_) fail_here("expected a word");
    return text_.substr(begin, at_ - begin);
  }
  int64_t integer() {
    const bool negative = take('-');
    std::string_view digits = word();
    int base = 10;
    if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2), base = 16;
    if (digits.ends_with('U')) digits.remove_suffix(1);
    uint64_t value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) fail_here("expected an integer");
    return static_cast<int64_t>(negative ? 0 - value : value);
  }
  std::string_view until(char c) {
    skip();
    const size_t begin = at_, end = text_.find(c, at_);
    if (end == std::string_view::npos) fail_here(fmt::format("expected a '{}'", c));
    for (; at_ < end; at_++) line_ += text_[at_] == '\n';
    return text_.substr(begin, at_ - begin);
  }
  // Returns what is between this brace and its partner.
  std::string_view braced() {
    expect('{');
    const size_t begin = at_;
    for (int depth = 1; depth > 0;) {
      if (done()) fail_here("a brace is not closed");
      depth += text_[at_] == '{' ? 1 : text_[at_] == '}' ? -1 : 0;
      at_++;
    }
    return text_.substr(begin, at_ - 1 - begin);
  }
  int line() {
    skip();
    return line_;
  }
  size_t at() const { return at_; }
  std::string_view from(size_t begin) const { return text_.substr(begin, at_ - begin); }
  [[noreturn]] void fail_here(const std::string& what) const {
    const size_t begin = std::min(text_.rfind('\n', at_ ? at_ - 1 : 0) + 1, at_);
    FAIL("{}:{}: {}: {}", file_, line_, what,
         text_.substr(begin, std::min<size_t>(text_.find('\n', at_), begin + 300) - begin));
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      if (is_space(text_[at_])) {
        line_ += text_[at_++] == '\n';
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }
  std::string_view file_, text_;
  size_t at_ = 0;
  int line_;
};

// "u32" to 4 bytes.
inline std::optional<int64_t> bytes_of_type(std::string_view type) {
  static const std::map<std::string_view, int64_t> bytes{{"b8", 1},  {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},
                                                         {"s16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4},
                                                         {"b64", 8}, {"u64", 8}, {"s64", 8}, {"f64", 8}};
  const auto at = bytes.find(type);
  return at == bytes.end() ? std::nullopt : std::optional(at->second);
}

using Named = std::vector<std::pair<std::string, Module::Symbol>>;

// [.align N] .TYPE NAME [[COUNT]], behind the word for the space.
inline Named::value_type declaration(Reader& r, std::string_view space) {
  Module::Symbol s{.space = std::string(space)};
  std::string_view type = r.word(true);
  const bool aligned = type == ".align";
  if (aligned) s.align = r.integer(), type = r.word(true);
  const auto bytes = bytes_of_type(type.substr(1));
  if (!bytes) r.fail_here(fmt::format("unknown type {}", type));
  if (!aligned) s.align = *bytes;
  s.bytes = s.element = *bytes;
  const std::string name(r.word());
  if (r.take('[')) {
    s.dynamic = r.peek() == ']';
    if (!s.dynamic) s.bytes *= r.integer();
    r.expect(']');
  }
  return {name, s};
}
inline Named parameters(Reader& r) {
  Named all;
  r.expect('(');
  while (!r.take(')')) {
    if (r.word(true) != ".param") r.fail_here("expected a .param");
    all.push_back(declaration(r, "param"));
    r.take(',');
  }
  return all;
}
inline std::vector<std::string> names(const Named& all) {
  std::vector<std::string> only;
  for (const auto& [name, symbol] : all) only.push_back(name);
  return only;
}
inline uint64_t aligned_up(uint64_t n, int64_t to) {
  return (n + static_cast<uint64_t>(to) - 1) / static_cast<uint64_t>(to) * static_cast<uint64_t>(to);
}

}  // namespace megalith::ptx
