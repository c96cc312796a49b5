#include "configs/reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace megalith {

std::string read_configuration(const std::string& path) {
  std::error_code error;
  CHECK(!std::filesystem::is_directory(path, error),
        "cannot read configuration {}: it is a folder; name the TOML file in it", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  CHECK(file.is_open() && !file.bad() && !text.fail(), "cannot read configuration {}: {}; is the path right?", path,
        std::strerror(errno));
  return text.str();
}

}  // namespace megalith
