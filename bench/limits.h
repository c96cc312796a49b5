// The measured limits of this machine, products and memory bandwidth, with which benches compare costs.
#pragma once

#include <map>
#include <string>

#include "bench/desk.h"

namespace megalith::bench {

// The units that bound an op: those of matrix products, or the plain ones, whose rate is the f32 rate.
enum class Unit { matrix, plain };
Unit unit_of(const std::string& op);

struct Limits {
  // A second: of a large matrix product; on a CPU of multiply-adds by themselves if these are faster
  std::map<DType, double> operations;
  double multiply_adds = 0;  // a second, of a CPU
  double bytes = 0;          // a second, read and written, of a large copy; a GPU's own copy

  explicit Limits(Desk& desk);
  // Returns seconds that no version of an op could be much faster than; f16 has the rate of bf16.
  double floor_operations(const Cost& cost, Unit unit, DType dtype) const;
  double floor_bytes(const Cost& cost) const { return cost.bytes / bytes; }

  std::string summary() const;
};

}  // namespace megalith::bench
