#include "data/path_pattern.h"

#include <glob.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/files.h"
#include "kernels/base/json.h"

namespace megalith {

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> paths_matching(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) check_path(path);
  return paths;
}

void check_path(const std::string& path) {
  check_is_path(path);
  CHECK(path.find_first_of(std::string("\0\n\r", 3)) == std::string::npos, "the path {} holds a line break; rename it",
        json_text_of_bytes(nlohmann::ordered_json(path)));
}

}  // namespace megalith
