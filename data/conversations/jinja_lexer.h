// The tokens of Jinja's syntax. Inside data/ only.
#pragma once

#include <string>
#include <vector>

namespace megalith::jinja {

struct Token {
  enum class Kind { text, begin_output, end_output, begin_block, end_block, name, string, number, symbol, end };
  Kind kind;
  std::string text;
  size_t line;
};

// Returns the texts of a template and the syntax tokens inside {{ }} and {% %}, followed by Kind::end. As in
// `transformers`, the first newline after a block is dropped (trim_blocks), and so are blanks before a block at the
// beginning of a line (lstrip_blocks). Error: with the line.
std::vector<Token> words_of(const std::string& text);

}  // namespace megalith::jinja
