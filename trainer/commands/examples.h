// Two examples for each command, which end its help and its section of the man page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith {

// `command` is its full name, as "megalith checkpoint export". Returns nothing for a group of commands.
std::vector<std::string_view> examples_of(std::string_view command);

}  // namespace megalith
