// UTF-8 text that comes in pieces, which may end inside of a character.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

// Returns the text without the beginning of a character at its end; bytes that are no UTF-8 stay.
std::string_view whole_characters(std::string_view text);

// Returns the text with U+FFFD for bytes that are not UTF-8: one for each beginning of a character that does not
// continue, and for each other byte, as Python's errors="replace" has it.
std::string valid_utf8(std::string_view bytes);

// Holds back the beginning of a character until the rest has come. What it returns is UTF-8.
class WholeCharacters {
 public:
  std::string add(std::string_view piece);
  // Returns U+FFFD where the text ends inside of a character.
  std::string rest();

 private:
  std::string held_;
};

}  // namespace megalith
