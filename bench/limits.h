// The measured limits of this machine, products and memory bandwidth, with which benches compare costs.
#pragma once

#include <map>
#include <string>

#include "bench/desk.h"

namespace megalith::bench {

struct Limits {
  // A second: of a large matrix product; on a CPU of multiply-adds by themselves if these are faster. e4m3: of a GPU
  // that has products in 8 bits
  std::map<DType, double> operations;
  double multiply_adds = 0;  // a second, of a CPU
  double bytes = 0;          // a second, read and written, of a large copy; a GPU's own copy

  explicit Limits(Desk& desk);
  // Returns seconds that no version of the op could be much faster than, in a model or a row of this type. f16 has the
  // rate of bf16; ops other than products and attention have that of f32.
  double floor_operations(const Cost& cost, const std::string& op, DType dtype) const;
  double floor_bytes(const Cost& cost) const { return cost.bytes / bytes; }

  std::string summary() const;
};

}  // namespace megalith::bench
