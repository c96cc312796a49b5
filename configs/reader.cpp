#include "configs/reader.h"

#include <filesystem>

#include "kernels/system/files.h"

namespace megalith {

std::string read_configuration(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr uintmax_t largest = uintmax_t{1} << 24;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  CHECK(type != fs::file_type::directory, "cannot read configuration {}: it is a folder; name the TOML file in it",
        path);
  CHECK(!error, "cannot read configuration {}: {}; is the path right?", path, error.message());
  CHECK(type == fs::file_type::regular, "cannot read configuration {}: it is not a plain file; is the path right?",
        path);
  const uintmax_t bytes = fs::file_size(path, error);
  CHECK(!error && bytes <= largest, "configuration {} has {} bytes, and at most {} are read; is the path right?", path,
        bytes, largest);
  return read_file(path);
}

int deepest_key(std::string_view toml) {
  int deepest = 1, parts = 1;
  for (size_t i = 0; i < toml.size(); i++) {
    const char c = toml[i];
    if (c == '"' || c == '\'') {
      // Three quotes begin a multi-line string, which three end; otherwise a string ends with its line at the latest.
      const std::string_view rest = toml.substr(i), three(c == '"' ? "\"\"\"" : "'''");
      const bool of_lines = rest.starts_with(three);
      const std::string_view end = of_lines ? three : three.substr(0, 1);
      for (i += end.size(); i < toml.size() && !toml.substr(i).starts_with(end) && (of_lines || toml[i] != '\n'); i++)
        if (toml[i] == '\\' && c == '"') i++;
      i += end.size() - 1;
      // A multi-line string may end in one or two quotes of its own.
      for (int more = 0; of_lines && more < 2 && i + 1 < toml.size() && toml[i + 1] == c; more++) i++;
    } else if (c == '#') {
      i = std::min(toml.find('\n', i), toml.size());
      parts = 1;
    } else if (c == '.') {
      deepest = std::max(deepest, ++parts);
    } else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) {
      parts = 1;
    }
  }
  return deepest;
}

}  // namespace megalith
