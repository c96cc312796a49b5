// Values of choices in other programs, with the words here: "bfloat16" is bf16.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megalith {

struct ForeignWord {
  std::string_view word;  // in lower case
  std::string_view here;  // our word, with what must be set too after a comma; or "not supported: ..."
};

std::span<const ForeignWord> foreign_words();

// Returns "write bf16" for "bfloat16", if that is one of the choices, or why there is none; "" if the word is unknown.
std::string foreign_word_message(std::string_view word, std::span<const std::string> choices);

}  // namespace megalith
