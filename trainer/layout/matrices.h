// Muon's work on matrices, divided among ranks. Every matrix of a layer is orthogonalised as a whole, by one rank of
// each replica: an attention's q, k and v are three matrices, and SwiGLU's first two products are two. The owner, the
// transfers and their order are a pure function of the plan that all ranks of a stage's replica compute alike.
//
// The layers of a stage are taken in rounds. The matrices of a round are assigned to the ranks of the shard and tensor
// axes: the matrix with the most work goes to the rank with the least so far, and so on. A round travels in two
// exchanges there and two back, each all-to-all in Plan::direction:
//   shard    every rank sends its shard's elements of a matrix's momentum (its tensor part) to the owner on the shard
//            axis. Each way moves the elements of a shard, whatever the number of ranks.
//   tensor   those owners have the matrix's parts on the tensor axis, and send them to the one that owns the matrix.
// So no layout changes what is orthogonalised: the order of a matrix's elements is its own, and sums over them depend
// only on its shape. Replicas of the data axis, whose momentum is the same, repeat the work and send nothing.
//
// With S ranks on the shard and t on the tensor axis, a round has about S t / 2 layers, so that a rank sends and
// receives about half a layer's elements, while each has the work of a matrix or two.
#pragma once

#include <vector>

#include "trainer/layout/plan.h"

namespace megalith {

struct Matrix {
  size_t unit = 0, param = 0;     // unit: of the plan; param: of the unit
  int64_t rows = 0, columns = 0;  // size of the whole matrix
  Split split = Split::none;      // over the tensor axis
  int64_t holders = 1;            // neighbouring ranks of the tensor axis that hold the same part
  Interval local{};  // elements of the unit's memory: this tensor rank's part, the same range on all of them
  int owner = 0, tensor_owner = 0;  // on the shard axis and on the tensor axis

  // Returns the FLOPs of the iteration's products in this type.
  double work(DType type) const;
  // Returns the elements of `local` that are in the shard of this rank of the shard axis.
  Interval in_shard(const UnitPlan& plan, int64_t shard) const;
};

struct Round {
  std::vector<size_t> units;
  std::vector<Matrix> matrices;  // ordered by unit and by place in its memory
};

// Returns the matrices of a unit in the order of its memory, without owners. Error: a matrix that tensor parallelism
// leaves whole.
std::vector<Matrix> matrices_of(const Plan& plan, size_t unit);

// Returns the rounds; empty if Muon updates nothing.
std::vector<Round> rounds_of(const Plan& plan);

}  // namespace megalith
