// The one exception type and the two ways to throw it. Every folder may include this file.
//
// An Error says what was wrong: the object, the numbers and the remedy, in one sentence or two. It carries the file and
// line that threw it for the log. Our code throws nothing else on purpose.
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

}  // namespace megalith

// FAIL("cannot open {}: {}; does the folder exist?", path, why)
#define FAIL(...) throw ::megalith::Error(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__))

// CHECK(rows == n, "{} rows, expected {}", rows, n): for input and for our own invariants alike; always compiled in.
#define CHECK(condition, ...)            \
  do {                                   \
    if (!(condition)) FAIL(__VA_ARGS__); \
  } while (false)
