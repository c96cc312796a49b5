// UTF-8 text that comes in pieces, which may end inside of a character.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

// Returns the text without the beginning of a character at its end; bytes that are no UTF-8 stay.
std::string_view whole_characters(std::string_view text);

// Holds back the beginning of a character until the rest has come.
class WholeCharacters {
 public:
  std::string add(std::string_view piece);
  // Returns what is held back.
  std::string rest();

 private:
  std::string held_;
};

}  // namespace megalith
