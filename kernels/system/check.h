// The one exception type and the two ways to throw it. Every folder may include this file.
//
// An Error names the object, the numbers and the remedy, in one or two sentences, and records the file and line that
// threw it. The project throws no other exceptions on purpose.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace megalith {

class Error : public std::runtime_error {
 public:
  Error(const char* file, int line, const std::string& message)
      : std::runtime_error(message), file_(file), line_(line) {}
  const char* file() const { return file_; }
  int line() const { return line_; }

 private:
  const char* file_;
  int line_;
};

// Formats out of line, so that the many uses of FAIL stay small.
[[noreturn]] void throw_error(const char* file, int line, fmt::string_view format, fmt::format_args values);

template <typename... Args>
[[noreturn]] void fail(const char* file, int line, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(file, line, format, fmt::make_format_args(args...));
}

}  // namespace megalith

// Example: FAIL("cannot open {}: {}; does the folder exist?", path, why)
#define FAIL(...) ::megalith::fail(__FILE__, __LINE__, __VA_ARGS__)

// Example: CHECK(rows == n, "{} rows, expected {}", rows, n). For input and for our own invariants; always compiled in.
#define CHECK(condition, ...)            \
  do {                                   \
    if (!(condition)) FAIL(__VA_ARGS__); \
  } while (false)
