// The cost of an op, stated at its launch; planner, profiler, MFU and bench read the same numbers.
#pragma once

#include <cstdint>

namespace megalith {

struct Cost {
  double flops = 0;  // multiplications and additions
  double bytes = 0;  // memory traffic of an ideal op, which reads or writes every argument once

  // The kind of work, which decides the rate. gemm: a matrix product (m, k) x (k, n); gemm_add: a product added to its
  // output; attention: causal, with m heads over all sequences, n positions and k features, of which `shared` heads
  // have keys and values; update: the optimizer's pass over weights; input: written by the host.
  enum class Kind : uint8_t { elementwise, update, gemm, gemm_add, attention, input };
  Kind kind = Kind::elementwise;
  int64_t m = 0, n = 0, k = 0;
  int64_t shared = 0;
  bool backward = false;  // attention's backward pass
  bool f32 = false;       // a product or attention in f32, whatever type the model computes in
  bool fp8 = false;       // a product of factors of 8 bits

  // A part of a step that is accounted for separately, whatever the kinds of its ops.
  enum class Section : uint8_t { none, directions };  // directions: of an update by Muon
  Section section = Section::none;

  bool operator==(const Cost&) const = default;
};

// All launches of one op on a Stream, summed.
struct OpRecord {
  const char* name;  // a string literal
  int64_t launches = 0;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;  // 0 in the dry world, and in the cuda world until Stream::time_ops()
};

}  // namespace megalith
