// The Error that a checkpoint itself is at fault for: a checksum, a size, a gap, a file that is not there. Whoever
// looks again, from anywhere, meets it again. What merely keeps this process from looking (rights, open files, memory,
// a disk that does not answer) is a plain Error, and no reason to think ill of the checkpoint.
#pragma once

#include <system_error>

#include "kernels/base/check.h"

namespace megalith {

class Damage : public Error {
 public:
  using Error::Error;
};

// Whether a look at a file that failed like this means that no such file is there.
inline bool means_absent(std::error_code error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory ||
         error == std::errc::is_a_directory;
}

}  // namespace megalith

// CHECK for what the bytes of a checkpoint must be.
#define CHECK_INTACT(condition, ...)                                                            \
  do {                                                                                          \
    if (!(condition)) throw ::megalith::Damage(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
