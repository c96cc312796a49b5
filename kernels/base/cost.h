// What an op costs, stated once, beside its launch: planner, profiler, MFU and bench quote the same numbers.
#pragma once

#include <cstdint>

namespace megalith {

struct Cost {
  double flops = 0;  // multiplications and additions
  double bytes = 0;  // memory traffic of an ideal op: every argument read or written once

  // What the op is at its heart, whose rate depends on its sizes: a matrix product (m, k) x (k, n), which may be added
  // to what is there, or causal attention of m heads, over all sequences, with n positions of k features. An update is
  // the optimizer's, which passes over weights and not over activations. An input is what the host writes.
  enum class Kind : uint8_t { elementwise, update, gemm, gemm_add, attention, input };
  Kind kind = Kind::elementwise;
  int64_t m = 0, n = 0, k = 0;

  bool operator==(const Cost&) const = default;
};

// What a Stream has launched of one op.
struct OpRecord {
  const char* name;  // a literal
  int64_t launches = 0;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;  // 0 in the dry world, and in the cuda world until Stream::time_ops()
};

}  // namespace megalith
