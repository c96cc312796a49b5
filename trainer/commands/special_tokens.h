// --special-tokens, the same for all commands that take texts.
#pragma once

#include "configs/choices.h"
#include "data/special_text.h"
#include "trainer/commands/command.h"

namespace megalith {

template <>
inline constexpr auto enum_words<SpecialTexts> = std::array<std::string_view, 3>{"ids", "text", "refuse"};
inline std::string to_string(SpecialTexts value) {
  return std::string(enum_words<SpecialTexts>[static_cast<size_t>(value)]);
}

// `refused`: what follows where one is refused.
inline CLI::Option* add_special_tokens(CLI::App* app, SpecialTexts& value, const std::string& refused) {
  const std::string sentence =
      "what special tokens that are written out in texts become: ids, as in transformers; text, as if they were none; "
      "refuse: " +
      refused;
  return add_choice(app, "--special-tokens", value, sentence.c_str());
}

}  // namespace megalith
