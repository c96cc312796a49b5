// Patterns of paths as a shell has them: *, ? and [...]; and **, alone between slashes, for any number of folders, none
// included, that are neither hidden nor linked. A pattern with ** matches files only.
#pragma once

#include <string>
#include <vector>

namespace megalith {

bool is_pattern(const std::string& name);

// The pattern that matches this path alone.
std::string as_pattern(const std::string& path);

// What there is of it, in the order of their bytes; nothing where nothing matches. Error as of check_path.
std::vector<std::string> paths_matching(const std::string& pattern);

// Error where a path would end lines of messages and lists, or is none (check_is_path).
void check_path(const std::string& path);

}  // namespace megalith
