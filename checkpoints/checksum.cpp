#include "checkpoints/checksum.h"

#define XXH_INLINE_ALL  // compiled for this processor: twice as fast as the generic library
#include <xxhash.h>

#include "kernels/system/check.h"

namespace megalith {

struct Checksum::State {
  struct Free {
    void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  CHECK(state_->xxh && XXH3_64bits_reset(state_->xxh.get()) == XXH_OK, "no memory for a checksum");
}
Checksum::~Checksum() = default;

void Checksum::add(const void* data, int64_t bytes) {
  if (bytes > 0) XXH3_64bits_update(state_->xxh.get(), data, static_cast<size_t>(bytes));
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->xxh.get()); }

uint64_t checksum_of(const void* data, int64_t bytes) { return XXH3_64bits(data, static_cast<size_t>(bytes)); }

std::string hex(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

uint64_t from_hex(const std::string& digits) {
  uint64_t value = 0;
  bool valid = digits.size() == 16;
  for (char c : digits) {
    const bool decimal = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
    valid = valid && (decimal || letter);
    value = value << 4 | static_cast<uint64_t>(decimal ? c - '0' : c - 'a' + 10);
  }
  CHECK(valid, "'{}' is not a checksum of 16 hexadecimal digits", digits);
  return value;
}

}  // namespace megalith
