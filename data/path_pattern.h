// Patterns of paths as a shell has them: *, ? and [...].
#pragma once

#include <string>
#include <vector>

namespace megalith {

bool is_pattern(const std::string& name);

// What there is of it, in the order of their bytes; nothing where nothing matches.
std::vector<std::string> paths_matching(const std::string& pattern);

}  // namespace megalith
