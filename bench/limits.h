// What this machine was measured to do, against which benches hold the costs that ops state: its products, and its
// memory.
#pragma once

#include <map>
#include <string>

#include "bench/desk.h"

namespace megalith::bench {

// What the operations of an op run on at best: the units of matrix products, or the plain ones, for which the rate in
// f32 stands.
enum class Unit { matrix, plain };
Unit unit_of(const std::string& op);

struct Limits {
  // A second: of a large matrix product on a GPU; on a CPU of that or of multiply-adds by themselves, what is more.
  std::map<DType, double> operations;
  double multiply_adds = 0;  // a second, of a CPU
  double bytes = 0;          // a second, of a large copy, those read and those written; a GPU's own copy

  explicit Limits(Desk& desk);
  // Seconds that no version of an op could be much faster than.
  double floor_operations(const Cost& cost, Unit unit, DType dtype) const;
  double floor_bytes(const Cost& cost) const { return cost.bytes / bytes; }

  std::string summary() const;
};

}  // namespace megalith::bench
