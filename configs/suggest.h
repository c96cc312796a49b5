// "Did you mean": what to say about a key that does not exist. Inside configs/ only.
#pragma once

#include "configs/field.h"

namespace megalith {

// "unknown key `modle.layers`, did you mean `model.layers`?". `name` is what was written, with or without a section;
// `keys` are those there are. Where nothing is near, the message lists them.
std::string unknown_key_message(std::string_view name, const std::vector<Key>& keys);
std::string unknown_section_message(std::string_view name, const std::vector<Key>& keys);

// For messages: cut where it is long, control characters escaped.
std::string shown(std::string_view text);

}  // namespace megalith
