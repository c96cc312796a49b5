// XXH3-64, written as sixteen lower-case hexadecimal digits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace megalith {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(const void* data, int64_t bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(const void* data, int64_t bytes);
std::string hex(uint64_t checksum);
uint64_t from_hex(const std::string& digits);  // Error if hex() did not make it

}  // namespace megalith
