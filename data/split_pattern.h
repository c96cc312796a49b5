// Whether a regular expression, as a tokenizer.json has it, cuts every text into the pre-tokens of pretokenizer.h.
#pragma once

#include <string_view>

namespace megalith {

// Knows GPT-2's pattern in its other forms: alternatives in another order where none hides another, groups, classes of
// characters, possessive quantifiers, escapes. False for every pattern that is not shown to be the same, so also for
// what is malformed.
bool cuts_as_gpt2(std::string_view pattern);

}  // namespace megalith
