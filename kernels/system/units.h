// Formats bytes in binary units.
#pragma once

#include <cstdint>

namespace megalith {

constexpr int64_t KiB = int64_t{1} << 10, MiB = int64_t{1} << 20, GiB = int64_t{1} << 30;

template <class N>
constexpr double gib(N bytes) {
  return static_cast<double>(bytes) / GiB;
}

}  // namespace megalith
