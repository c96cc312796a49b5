// The weights of products in 8 bits (UnitPlan::fp8): each is cast once for all microbatches of a step, with one scale
// for all shards and all tensor-parallel parts of it (kernels/linear/fp8.h). Each rank casts its shard, which is then
// gathered in place of the 16-bit one. The other elements of a unit, norms and biases, are gathered here, in 16 bits,
// since they are few.
#pragma once

#include <map>
#include <vector>

#include "trainer/parallel/unit.h"

namespace megalith {

class Fp8Weights {
 public:
  // Allocates memory; `plan`, `runtime` and `units` must outlive it, and `units` stay where it is.
  Fp8Weights(const Plan& plan, Runtime& runtime, const std::vector<Unit>& units);

  // Executes the instruction. Collective over the shard and the tensor-parallel group.
  void cast();

  bool has(size_t unit) const { return units_.contains(unit); }
  // (S) e4m3: this rank's shard of the unit. Elements that are not cast are 0.
  Tensor shard(size_t unit) const { return units_.at(unit).shard; }
  // Sets the unit's parameters, by index; `whole` (numel) e4m3: the unit's gathered shards.
  void add_views(UnitTensors& tensors, size_t unit, const Tensor& whole) const;

 private:
  struct CastUnit {
    Tensor shard;
    size_t first_scale;  // its parameters' scales begin here, in their order
    Tensor rest;         // the elements that are not cast, in the compute type
  };
  Tensor not_cast(size_t unit) const;
  void gather_rest(size_t unit);

  const Plan& plan_;
  Runtime& runtime_;
  const std::vector<Unit>& all_;
  std::map<size_t, CastUnit> units_;
  Tensor amax_, unscale_;  // (parameters that are cast) f32
};

}  // namespace megalith
