// Patterns of paths as a shell has them: *, ? and [...].
#pragma once

#include <string>
#include <vector>

namespace megalith {

bool is_pattern(const std::string& name);

// What there is of it, in the order of their bytes; nothing where nothing matches. Error as of check_path.
std::vector<std::string> paths_matching(const std::string& pattern);

// Error where a path would end lines of messages and lists, or is none (check_is_path).
void check_path(const std::string& path);

}  // namespace megalith
