// "Did you mean": the message for a key, or another name, that does not exist.
#pragma once

#include "configs/field.h"

namespace megalith {

// Returns "unknown key `modle.layers`, did you mean `model.layers`?". `name` is the user's text, with or without a
// section; `keys` are the valid ones, which the message lists if none is near.
std::string unknown_key_message(std::string_view name, const std::vector<Key>& keys);
std::string unknown_section_message(std::string_view name, const std::vector<Key>& keys);

// Returns the candidate nearest to a name, or "" if none is near enough.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// For messages: truncates long text and escapes control characters.
std::string shown(std::string_view text);

}  // namespace megalith
