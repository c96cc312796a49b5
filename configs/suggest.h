// "Did you mean": what to say about a key, or another name, that does not exist.
#pragma once

#include "configs/field.h"

namespace megalith {

// "unknown key `modle.layers`, did you mean `model.layers`?". `name` is what was written, with or without a section;
// `keys` are those there are. Where nothing is near, the message lists them.
std::string unknown_key_message(std::string_view name, const std::vector<Key>& keys);
std::string unknown_section_message(std::string_view name, const std::vector<Key>& keys);

// The candidate that is nearest to a name, or none when every one is too far to be what was meant.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// For messages: cut where it is long, control characters escaped.
std::string shown(std::string_view text);

}  // namespace megalith
