#include "trainer/runtime/mesh.h"

namespace megalith {

const char* name_of(Axis axis) {
  switch (axis) {
    case Axis::tensor: return "tensor";
    case Axis::shard: return "shard";
    case Axis::data: return "data";
    default: return "pipeline";
  }
}

int MeshShape::extent(Axis axis) const {
  switch (axis) {
    case Axis::tensor: return tensor;
    case Axis::shard: return shard;
    case Axis::data: return data;
    default: return pipeline;
  }
}

int MeshShape::stride(Axis axis) const {
  int stride = 1;
  for (Axis inner : all_axes) {
    if (inner == axis) break;
    stride *= extent(inner);
  }
  return stride;
}

std::string MeshShape::describe(int rank) const {
  std::string where;
  for (Axis axis : all_axes)
    if (extent(axis) > 1)
      where += fmt::format("{}{} {}", where.empty() ? "" : ", ", name_of(axis), coordinate(rank, axis));
  return where.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, where);
}

Mesh::Mesh(const MeshShape& shape, Communicator& world) : Mesh(shape, world.rank()) {
  CHECK(shape.size() == world.size(), "a mesh of {} ranks on a world of {}", shape.size(), world.size());
  for (Axis axis : all_axes) {
    auto& slot = axes_[static_cast<size_t>(axis)];
    // A split is collective, so groups of one are split off only when all groups of the axis are.
    slot = shape.extent(axis) == 1
               ? self_communicator(name_of(axis))
               : world.split(name_of(axis), shape.group(rank_, axis), shape.coordinate(rank_, axis));
  }
}

Mesh Mesh::dry(const MeshShape& shape, int rank) {
  Mesh mesh(shape, rank);
  for (Axis axis : all_axes) {
    auto& slot = mesh.axes_[static_cast<size_t>(axis)];
    slot = shape.extent(axis) == 1 ? self_communicator(name_of(axis))
                                   : dry_communicator(name_of(axis), shape.coordinate(rank, axis), shape.extent(axis));
  }
  return mesh;
}

}  // namespace megalith
