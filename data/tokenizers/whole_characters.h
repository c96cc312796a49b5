// UTF-8 text that comes in pieces, which may end inside a character.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

// Returns the text without the beginning of a character at its end; bytes that are not UTF-8 are kept.
std::string_view whole_characters(std::string_view text);

// Returns the text with U+FFFD in place of bytes that are not UTF-8: one for each incomplete character, and one for
// each other byte, as with Python's errors="replace".
std::string valid_utf8(std::string_view bytes);

// Holds back the beginning of a character until the rest arrives. Its results are UTF-8.
class WholeCharacters {
 public:
  std::string add(std::string_view piece);
  // Returns U+FFFD if the text ends inside a character, else "".
  std::string rest();

 private:
  std::string held_;
};

}  // namespace megalith
