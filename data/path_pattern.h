// Patterns of paths as a shell has them: *, ? and [...]; and **, alone between slashes, for any number of folders, none
// included, that are neither hidden nor linked. A pattern with ** matches files only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace megalith {

using LeftOut = std::map<std::string, int64_t>;  // by kind, as "linked folder": how many
std::string to_text(const LeftOut& left_out);    // "3 empty files, 1 linked folder"

bool is_pattern(const std::string& name);

// The pattern that matches this path alone.
std::string as_pattern(const std::string& path);

// Returns what there is of it, in the order of their bytes; nothing where nothing matches. Linked folders that ** does
// not enter are counted in `left_out`. Error as of check_path.
std::vector<std::string> paths_matching(const std::string& pattern, LeftOut* left_out = nullptr);

// Error where a path would end lines of messages and lists, or is none (check_is_path).
void check_path(const std::string& path);

}  // namespace megalith
