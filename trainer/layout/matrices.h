// Muon's work on matrices, shared out among ranks. Every matrix of a layer is orthogonalised as a whole, by one rank of
// each replica: an attention's q, k and v are three matrices, and SwiGLU's two products are two. Which rank, what
// travels and when is a pure function of the plan that all ranks of a stage's replica compute alike.
//
// The layers of a stage are taken in rounds. The matrices of a round are dealt out to the ranks of the shard and tensor
// axes, the one with the most work next to the rank with the least so far. A round travels in two exchanges there and
// two back, each all-to-all in Plan::direction:
//   shard    every rank sends its shard's elements of a matrix's momentum (of its tensor part) to the owner on
//            the shard axis. Each way moves the elements of a shard, whatever the number of ranks.
//   tensor   those owners have the matrix's parts on the tensor axis, and send them to the one that owns the matrix.
// So no layout changes what is orthogonalised: the order of a matrix's elements is its own, and sums over them depend
// on its shape alone. Replicas of the data axis, whose momentum is the same, repeat the work and send nothing.
//
// With S ranks on the shard and t on the tensor axis, a round has about S t / 2 layers, so that what a rank sends and
// receives is about half a layer's, while each has the work of a matrix or two.
#pragma once

#include <vector>

#include "trainer/layout/plan.h"

namespace megalith {

struct Matrix {
  size_t unit = 0, param = 0;       // of the plan, of the unit
  int64_t rows = 0, columns = 0;    // of the whole matrix
  Split split = Split::none;        // over the tensor axis
  int64_t holders = 1;              // ranks of the tensor axis, one after another, that have the same part
  Interval local{};                 // elements of the unit's memory: this tensor rank's part, the same on all of them
  int owner = 0, tensor_owner = 0;  // on the shard axis and on the tensor axis

  // FLOPs of the iteration's products in this type.
  double work(DType type) const;
  // Elements of `local` in the shard of that rank of the shard axis.
  Interval in_shard(const UnitPlan& plan, int64_t shard) const;
};

struct Round {
  std::vector<size_t> units;
  std::vector<Matrix> matrices;  // in the order of units and of their memory
};

// The matrices of a unit in the order of its memory; without owners. Error: one that tensor parallelism leaves whole.
std::vector<Matrix> matrices_of(const Plan& plan, size_t unit);

// Empty where Muon updates nothing.
std::vector<Round> rounds_of(const Plan& plan);

}  // namespace megalith
