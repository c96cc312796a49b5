// Glob patterns: *, ? and [...]; and ** as a whole path component, for any number of folders, including none, that are
// neither hidden nor symbolic links. A pattern with ** matches files only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith {

using LeftOut = std::map<std::string, int64_t>;  // number by kind, such as "linked folder"
std::string to_text(const LeftOut& left_out);    // "3 empty files, 1 linked folder"

bool is_pattern(const std::string& name);

// Escapes a path as the pattern that matches it alone.
std::string as_pattern(const std::string& path);

// Returns the matches, sorted by their bytes. Counts linked folders that ** does not enter. Error: that of check_path.
std::vector<std::string> paths_matching(const std::string& pattern, LeftOut* left_out = nullptr);

// Error if a path would break the lines of messages and lists, or is not a path (check_is_path).
void check_path(const std::string& path);

}  // namespace megalith
