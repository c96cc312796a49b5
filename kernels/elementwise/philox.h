// Philox4x32-10, a counter-based generator: the i-th number of a key is a pure function of (key, i), so every layout of
// ranks draws the same numbers for the same global element.
// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace megalith {

using PhiloxBlock = std::array<uint32_t, 4>;

// Four random words for counter (c0, c1) under key `key`.
constexpr PhiloxBlock philox(uint64_t key, uint64_t c0, uint64_t c1) {
  auto lo = [](uint64_t v) { return static_cast<uint32_t>(v); };
  auto hi = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  PhiloxBlock x{lo(c0), hi(c0), lo(c1), hi(c1)};
  uint32_t k0 = lo(key), k1 = hi(key);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * x[2];
    x = {hi(p1) ^ x[1] ^ k0, lo(p1), hi(p0) ^ x[3] ^ k1, lo(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

// Uniform in (0, 1), never either end.
constexpr float uniform(uint32_t word) { return (static_cast<float>(word >> 8) + 0.5f) * (1.0f / 16777216.0f); }

}  // namespace megalith
