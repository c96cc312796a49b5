// The finalizer of SplitMix64: every bit of the argument affects every bit of the result. Source: Steele, Lea, Flood,
// Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
#pragma once

#include <cstdint>

namespace megalith {

constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The generator's step, then the finalizer, so that 0 does not become 0.
constexpr uint64_t mix_next(uint64_t x) { return mix(x + 0x9e3779b97f4a7c15u); }

}  // namespace megalith
