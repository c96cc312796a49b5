// "Did you mean": what to say about a key that does not exist. Inside configs/ only.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

// "unknown key `modle.layers`, did you mean `model.layers`?". `name` is what was written, with or without a section.
// Where nothing is near, the message lists what there is.
std::string unknown_key_message(std::string_view name);
std::string unknown_section_message(std::string_view name);

// For messages: cut where it is long, control characters escaped.
std::string shown(std::string_view text);

}  // namespace megalith
