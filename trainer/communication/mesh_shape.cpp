#include "trainer/communication/mesh_shape.h"

#include <fmt/format.h>

#include "kernels/system/counted.h"

namespace megalith {

const char* name_of(Axis axis) {
  constexpr const char* names[] = {"tensor", "shard", "data", "pipeline"};
  return names[static_cast<size_t>(axis)];
}

const char* name_of(Channel channel) {
  switch (channel) {
    case Channel::tensor: return "tensor";
    case Channel::heads: return "key-value heads";
    case Channel::shard: return "shard";
    case Channel::between_nodes: return "shard between nodes";
    case Channel::in_node: return "shard in node";
    case Channel::data: return "data";
    case Channel::forward: return "pipeline forward";
    case Channel::backward: return "pipeline backward";
    case Channel::forward_return: return "forward, returning";
    case Channel::backward_return: return "backward, returning";
    case Channel::host: return "host";
    default: return "world";
  }
}

int MeshShape::extent(Axis axis) const { return std::array{tensor, shard, data, pipeline}[static_cast<size_t>(axis)]; }

int MeshShape::stride(Axis axis) const {
  int stride = 1;
  for (Axis inner : placement) {
    if (inner == axis) break;
    stride *= extent(inner);
  }
  return stride;
}

int MeshShape::shard_nodes() const {
  const int distance = stride(Axis::shard);
  if (ranks_per_node == 0 || ranks_per_node % distance != 0 || distance * shard % ranks_per_node != 0) return 1;
  return distance * shard / ranks_per_node;
}

int MeshShape::coordinate(int rank, Axis axis) const {
  const int along = rank / stride(axis) % extent(axis);
  if (axis != Axis::shard) return along;
  const int nodes = shard_nodes(), in_node = shard / nodes;
  return along % in_node * nodes + along / in_node;
}

MeshShape::Position MeshShape::position(int rank, Channel channel) const {
  const auto on_axis = [&](Axis axis) -> Position {
    const int distance = stride(axis), along = rank / distance % extent(axis);
    return {rank - along * distance, coordinate(rank, axis), extent(axis)};
  };
  switch (channel) {
    case Channel::tensor: return on_axis(Axis::tensor);
    case Channel::heads: {
      const Position all = on_axis(Axis::tensor);
      const int index = all.index % head_holders;
      return {all.group + (all.index - index) * stride(Axis::tensor), index, head_holders};
    }
    case Channel::data: return on_axis(Axis::data);
    case Channel::forward:
    case Channel::backward: return on_axis(Axis::pipeline);
    case Channel::forward_return:
    case Channel::backward_return: return v_shaped ? on_axis(Axis::pipeline) : Position{rank, 0, 1};
    case Channel::world: return {0, rank, size()};
    case Channel::host: return {rank, 0, 1};
    default: break;
  }
  const Position whole = on_axis(Axis::shard);
  if (channel == Channel::shard) return whole;
  const int nodes = shard_nodes(), in_node = shard / nodes, distance = stride(Axis::shard);
  const int node = whole.index % nodes, index_in_node = whole.index / nodes;
  if (channel == Channel::between_nodes) return {whole.group + index_in_node * distance, node, nodes};
  return {whole.group + node * in_node * distance, index_in_node, in_node};
}

std::string MeshShape::summary() const {
  std::string axes;
  for (Axis axis : all_axes)
    if (extent(axis) > 1) axes += fmt::format("{}{} {}", axes.empty() ? ": " : " x ", name_of(axis), extent(axis));
  return counted(size(), "rank") + axes;
}

std::string MeshShape::describe(int rank) const {
  std::string where;
  for (Axis axis : all_axes)
    if (extent(axis) > 1)
      where += fmt::format("{}{} {}", where.empty() ? "" : ", ", name_of(axis), coordinate(rank, axis));
  return where.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, where);
}

}  // namespace megalith
