// Quotes bytes as a C string, so that blanks, line ends and invalid UTF-8 are visible: a token may be a part of a
// character.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

std::string quoted_bytes(std::string_view text);

}  // namespace megalith
