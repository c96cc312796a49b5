// Bytes of a text as a C string would have them, so that one sees blanks, line ends and what is no UTF-8: a token may
// be a part of a character.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

std::string quoted_bytes(std::string_view text);

}  // namespace megalith
