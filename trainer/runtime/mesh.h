// The mesh: which rank stands where. A rank has one coordinate on each axis, tensor innermost (its neighbours talk
// most):
//   rank = ((pipeline * data + d) * shard + s) * tensor + t.
// `shard` ranks share one copy of the weights; `data` counts the copies; together they split the batch.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "trainer/runtime/communicator.h"

namespace megalith {

enum class Axis : uint8_t { tensor, shard, data, pipeline };
constexpr std::array<Axis, 4> all_axes{Axis::tensor, Axis::shard, Axis::data, Axis::pipeline};
const char* name_of(Axis axis);

struct MeshShape {
  int tensor = 1, shard = 1, data = 1, pipeline = 1;

  int size() const { return tensor * shard * data * pipeline; }
  int extent(Axis axis) const;
  int stride(Axis axis) const;  // distance between neighbours on the axis, in ranks
  int coordinate(int rank, Axis axis) const { return rank / stride(axis) % extent(axis); }
  // The lowest rank of the group that `rank` belongs to on the axis: with the axis, it names the group.
  int group(int rank, Axis axis) const { return rank - coordinate(rank, axis) * stride(axis); }

  // The batch is split over data and shard: which of how many parts this rank takes.
  int batch_ranks() const { return shard * data; }
  int batch_rank(int rank) const { return coordinate(rank, Axis::data) * shard + coordinate(rank, Axis::shard); }

  std::string describe(int rank) const;  // "rank 3 (data 1, shard 1)": axes of extent 1 are left out
};

// One communicator for each axis of one rank.
class Mesh {
 public:
  // Splits `world`; collective.
  Mesh(const MeshShape& shape, Communicator& world);
  // The dry mesh of any rank.
  static Mesh dry(const MeshShape& shape, int rank);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  Communicator& axis(Axis axis) const { return *axes_[static_cast<size_t>(axis)]; }

 private:
  Mesh(const MeshShape& shape, int rank) : shape_(shape), rank_(rank) {}

  MeshShape shape_;
  int rank_;
  std::array<std::unique_ptr<Communicator>, 4> axes_;
};

}  // namespace megalith
