// Options that are a choice among words. The words of an enum are listed next to it, in the order of its enumerators:
// enum class Topology { switched, host }; constexpr auto words_of(Topology) { return words("switch", "host"); }
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

template <class... Word>
constexpr std::array<std::string_view, sizeof...(Word)> words(Word... word) {
  return {word...};
}

template <class Choice>
requires requires { words_of(Choice{}); }
std::string to_string(Choice value) { return std::string(words_of(value).at(static_cast<size_t>(value))); }

template <class Choice>
std::vector<std::string> choice_words() {
  const auto all = words_of(Choice{});
  return {all.begin(), all.end()};
}

template <class Choice>
std::optional<Choice> parse_choice(std::string_view word) {
  const auto all = words_of(Choice{});
  const auto found = std::ranges::find(all, word);
  if (found == all.end()) return std::nullopt;
  return static_cast<Choice>(found - all.begin());
}

}  // namespace megalith
