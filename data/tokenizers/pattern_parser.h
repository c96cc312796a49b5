// The syntax tree of a pattern of TextPattern.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/characters.h"

namespace megalith {

constexpr uint32_t no_most = UINT32_MAX;  // a part that repeats without limit

struct PatternPart {
  enum class Kind { character, sequence, alternatives, repeat, look_ahead, look_behind, atomic, begins, ends };
  Kind kind = Kind::sequence;
  CharacterSet set = {};  // a single character's
  std::vector<PatternPart> inside = {};
  uint32_t least = 1, most = 1;
  bool is_lazy = false, is_possessive = false, is_negated = false, ignores_case = false;

  bool is_one_literal() const { return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last; }
  bool may_be_empty() const {
    const auto may = [](const PatternPart& part) { return part.may_be_empty(); };
    switch (kind) {
      case Kind::character: return false;
      case Kind::sequence:
      case Kind::atomic: return std::all_of(inside.begin(), inside.end(), may);
      case Kind::alternatives: return std::any_of(inside.begin(), inside.end(), may);
      case Kind::repeat: return least == 0 || inside[0].may_be_empty();
      default: return true;
    }
  }
};

// Error: syntax that text_pattern.h does not support. `where` begins the message.
PatternPart parse_pattern(std::string_view pattern, const std::string& where);

}  // namespace megalith
