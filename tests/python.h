// Python packages that read or compute what is ours, for tests that compare: MEGALITH_PYTHON names an interpreter.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace megalith {

// MEGALITH_PYTHON, if it can import these packages ("torch, h5py"), or "".
inline std::string python_with(const std::string& packages) {
  const char* python = std::getenv("MEGALITH_PYTHON");
  if (python == nullptr) return "";
  const std::string command = fmt::format("'{}' -c 'import {}' >/dev/null 2>&1", python, packages);
  return std::system(command.c_str()) == 0 ? python : "";
}

}  // namespace megalith
