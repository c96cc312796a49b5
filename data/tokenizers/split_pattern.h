// Recognizes regular expressions of a tokenizer.json that split every text into the pre-tokens of pretokenizer.h.
#pragma once

#include <string_view>

namespace megalith {

// Knows GPT-2's pattern in other forms: reordered alternatives where none hides another, groups, character classes,
// possessive quantifiers, escapes. Returns false for every pattern not known to be equivalent, malformed ones included.
bool cuts_as_gpt2(std::string_view pattern);

}  // namespace megalith
