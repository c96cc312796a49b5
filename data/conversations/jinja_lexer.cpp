#include "data/conversations/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith::jinja {

namespace {

class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) {}

  std::vector<Token> tokens() {
    while (at_ < text_.size()) between();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void pass(size_t count) {
    for (const size_t end = std::min(text_.size(), at_ + count); at_ < end; at_++) line_ += text_[at_] == '\n';
  }
  bool here(std::string_view what) const { return text_.compare(at_, what.size(), what) == 0; }

  void between() {
    size_t open = at_;
    do {
      open = text_.find('{', open);
      if (open == std::string::npos || open + 1 >= text_.size()) open = text_.size();
    } while (open < text_.size() && std::string_view("{%#").find(text_[open + 1]) == std::string_view::npos && ++open);
    std::string plain = text_.substr(at_, open - at_);
    if (open == text_.size()) {
      if (plain.ends_with('\n')) plain.pop_back();  // keep_trailing_newline is off
      add(Token::Kind::text, plain);
      return pass(open - at_);
    }
    const char kind = text_[open + 1];
    const char sign = open + 2 < text_.size() ? text_[open + 2] : ' ';
    if (sign == '-') {
      while (!plain.empty() && std::isspace(static_cast<unsigned char>(plain.back()))) plain.pop_back();
    } else if (kind != '{' && sign != '+') {
      const size_t begin = plain.find_last_of('\n');
      const size_t first = begin == std::string::npos ? 0 : begin + 1;
      const bool at_begin = begin != std::string::npos || at_ == 0 || text_[at_ - 1] == '\n';
      if (at_begin && plain.find_first_not_of(" \t", first) == std::string::npos) plain.erase(first);
    }
    if (!plain.empty()) add(Token::Kind::text, plain);
    pass(open + 2 - at_);
    if (sign == '-' || sign == '+') pass(1);
    if (kind == '#') return comment();
    add(kind == '{' ? Token::Kind::begin_output : Token::Kind::begin_block, "");
    inside(kind == '{' ? "}}" : "%}", kind == '{' ? Token::Kind::end_output : Token::Kind::end_block);
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    CHECK(end != std::string::npos, "line {}: a comment does not end", line_);
    const bool strips = end > at_ && text_[end - 1] == '-';
    pass(end + 2 - at_);
    after(strips, true);
  }

  void after(bool strips, bool is_block) {
    if (strips) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) pass(1);
    } else if (is_block && here("\n")) {
      pass(1);
    }
  }

  void inside(std::string_view close, Token::Kind end) {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) pass(1);
      CHECK(at_ < text_.size(), "line {}: {} is missing", line_, close);
      const bool strips = here("-") && text_.compare(at_ + 1, 2, close) == 0;
      if (strips || (here(close) && depth_ == 0)) {
        add(end, "");
        pass(strips ? 3 : 2);
        return after(strips, end == Token::Kind::end_block);
      }
      word();
    }
  }

  void word() {
    const char c = text_[at_];
    size_t end = at_;
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_')) end++;
      add(Token::Kind::name, text_.substr(at_, end - at_));
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      while (end < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[end])) ||
                                    (text_[end] == '.' && end + 1 < text_.size() &&
                                     std::isdigit(static_cast<unsigned char>(text_[end + 1])))))
        end++;
      add(Token::Kind::number, text_.substr(at_, end - at_));
    } else if (c == '\'' || c == '"') {
      return string(c);
    } else {
      static constexpr std::array<std::string_view, 6> pairs{"==", "!=", "<=", ">=", "//", "**"};
      const auto pair = std::ranges::find_if(pairs, [&](std::string_view p) { return here(p); });
      end = at_ + (pair == pairs.end() ? 1 : 2);
      const std::string symbol = text_.substr(at_, end - at_);
      CHECK(std::string_view("+-*/%~=<>!|.,:()[]{}").find(symbol[0]) != std::string_view::npos,
            "line {}: `{}` is not valid in a template", line_, symbol);
      if (symbol == "(" || symbol == "[" || symbol == "{") depth_++;
      if (symbol == ")" || symbol == "]" || symbol == "}") depth_--;
      add(Token::Kind::symbol, symbol);
    }
    pass(end - at_);
  }

  void string(char quote) {
    std::string value;
    size_t at = at_ + 1;
    for (; at < text_.size() && text_[at] != quote; at++) {
      if (text_[at] != '\\' || at + 1 == text_.size()) {
        value += text_[at];
        continue;
      }
      const char c = text_[++at];
      if (c == 'u' && at + 4 < text_.size()) {
        try {  // JSON's escapes of four digits are these
          value += parse_json("\"\\u" + text_.substr(at + 1, 4) + "\"").get<std::string>();
        } catch (const nlohmann::json::exception&) {
          FAIL("line {}: \\u{} is not a character", line_, text_.substr(at + 1, 4));
        }
        at += 4;
      } else {
        static constexpr std::string_view from = "nrtbf0", to{"\n\r\t\b\f\0", 6};
        const size_t known = from.find(c);
        if (known != std::string_view::npos)
          value += to[known];
        else if (c == '\\' || c == '\'' || c == '"')
          value += c;
        else if (c != '\n')
          value += {'\\', c};
      }
    }
    CHECK(at < text_.size(), "line {}: a string does not end", line_);
    add(Token::Kind::string, value);
    pass(at + 1 - at_);
  }

  const std::string& text_;
  size_t at_ = 0, line_ = 1;
  int depth_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> words_of(const std::string& text) {
  std::string lines;  // Jinja makes one newline of each
  for (size_t i = 0; i < text.size(); i++)
    if (text[i] != '\r')
      lines += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n')
      lines += '\n';
  return Lexer(lines).tokens();
}

}  // namespace megalith::jinja
