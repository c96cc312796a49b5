// The shape of the mesh of ranks, and which ranks form each group: pure functions of the numbers. A rank has one
// coordinate on each axis; the placement decides which axis has neighbouring ranks as neighbours. By default tensor is
// innermost (its ranks communicate most): rank = ((pipeline * data + d) * shard + s) * tensor + t. `shard` ranks share
// one replica of the weights; `data` counts the replicas; together they split the batch.
//
// Ranks fill the nodes in order. If a shard group spans several nodes evenly, its shards are numbered across the nodes
// first (shard = index in the node * nodes + node): a gather between nodes followed by one inside each node then leaves
// every shard in its place, with no copy to reorder them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/stream/trace.h"

namespace megalith {

enum class Axis : uint8_t { tensor, shard, data, pipeline };
constexpr std::array<Axis, 4> all_axes{Axis::tensor, Axis::shard, Axis::data, Axis::pipeline};
const char* name_of(Axis axis);

// The purpose of a communicator. Each has its own group, so that its transfers never wait for another's.
enum class Channel : uint8_t {
  tensor,
  heads,          // the ranks of a tensor group with the same key-value head (MeshShape::head_holders)
  shard,          // the whole shard group
  between_nodes,  // the ranks of a shard group with the same index in their nodes; one rank if the group is inside one
                  // node
  in_node,        // the ranks of a shard group on one node
  data,
  forward,          // activations along the pipeline axis
  backward,         // their gradients
  forward_return,   // activations on the way back up a V of stages
  backward_return,  // their gradients, which go down
  world,
  host = host_channel,  // the rank's own copies between device and host
};
constexpr int num_channels = 11;  // all channels except host
constexpr std::array<Channel, num_channels> all_channels{
    Channel::tensor, Channel::heads,   Channel::shard,    Channel::between_nodes,  Channel::in_node,
    Channel::data,   Channel::forward, Channel::backward, Channel::forward_return, Channel::backward_return,
    Channel::world};
const char* name_of(Channel channel);
// Returns the direction of messages on a pipeline's channel: to the next stage (1) or the previous one (-1), around the
// ring of stages; 0 for other channels.
constexpr int direction_of(Channel channel) {
  if (channel == Channel::forward || channel == Channel::backward_return) return 1;
  return channel == Channel::backward || channel == Channel::forward_return ? -1 : 0;
}

struct MeshShape {
  int tensor = 1, shard = 1, data = 1, pipeline = 1;
  std::array<Axis, 4> placement = all_axes;  // innermost first
  int ranks_per_node = 0;                    // 0: all on one
  int head_holders = 1;   // ranks of the tensor axis that hold a key-value head, neighbours, never all
  bool v_shaped = false;  // the pipeline is a V: its chunks send messages in both directions

  int size() const { return tensor * shard * data * pipeline; }
  int extent(Axis axis) const;
  int stride(Axis axis) const;  // distance between neighbours on the axis, in ranks
  int coordinate(int rank, Axis axis) const;
  int node(int rank) const { return ranks_per_node > 0 ? rank / ranks_per_node : 0; }
  // Returns how many nodes each shard group spans evenly; 1 if nodes and groups do not fit.
  int shard_nodes() const;

  // A rank's position in a channel: `group` is a number that all members of its group have.
  struct Position {
    int group, index, size;
  };
  Position position(int rank, Channel channel) const;

  // The batch is split over data and shard, into batch_ranks() shares.
  int batch_ranks() const { return shard * data; }
  int batch_rank(int rank) const { return coordinate(rank, Axis::data) * shard + coordinate(rank, Axis::shard); }

  std::string summary() const;           // "8 ranks: tensor 2 x shard 4"
  std::string describe(int rank) const;  // "rank 3 (data 1, shard 1)"; axes of extent 1 are left out
};

}  // namespace megalith
