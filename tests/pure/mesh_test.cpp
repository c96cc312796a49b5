// Placement of the axes on ranks, and the numbering of shards across nodes.
#include "trainer/communication/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace megalith {
namespace {

std::vector<MeshShape> shapes() {
  std::vector<MeshShape> all;
  std::array<Axis, 4> placement = all_axes;
  do {
    for (int t : {1, 2, 3})
      for (int s : {1, 2, 4})
        for (int d : {1, 2})
          for (int p : {1, 2})
            for (int node : {0, 1, 2, 4, 5, 8})
              all.push_back({.tensor = t == 3 ? 6 : t,
                             .shard = s,
                             .data = d,
                             .pipeline = p,
                             .placement = placement,
                             .ranks_per_node = node,
                             .head_holders = t});
  } while (std::next_permutation(placement.begin(), placement.end()));
  return all;
}

std::string text(const MeshShape& m) {
  std::string order;
  for (Axis axis : m.placement) order += std::string(name_of(axis)) + m.describe(0).substr(0, 1);
  return fmt::format("{}x{}x{}x{} {} on nodes of {}", m.tensor, m.shard, m.data, m.pipeline, order, m.ranks_per_node);
}

TEST(Mesh, EveryPlacementGivesEachRankItsOwnCoordinates) {
  for (const MeshShape& mesh : shapes()) {
    std::set<std::array<int, 4>> seen;
    for (int rank = 0; rank < mesh.size(); rank++)
      seen.insert({mesh.coordinate(rank, Axis::tensor), mesh.coordinate(rank, Axis::shard),
                   mesh.coordinate(rank, Axis::data), mesh.coordinate(rank, Axis::pipeline)});
    ASSERT_EQ(static_cast<int>(seen.size()), mesh.size()) << text(mesh);
  }
}

TEST(Mesh, TheInnermostAxisHasNeighbouringRanks) {
  const MeshShape mesh{.tensor = 2,
                       .shard = 3,
                       .data = 2,
                       .pipeline = 2,
                       .placement = {Axis::pipeline, Axis::data, Axis::tensor, Axis::shard}};
  EXPECT_EQ(mesh.stride(Axis::pipeline), 1);
  EXPECT_EQ(mesh.stride(Axis::data), 2);
  EXPECT_EQ(mesh.stride(Axis::tensor), 4);
  EXPECT_EQ(mesh.stride(Axis::shard), 8);
  EXPECT_EQ(mesh.coordinate(23, Axis::shard), 2);
}

TEST(Mesh, ChannelsArePartitionsWithOneIndexEach) {
  for (const MeshShape& mesh : shapes())
    for (Channel channel : all_channels) {
      std::map<int, std::set<int>> groups;
      for (int rank = 0; rank < mesh.size(); rank++) {
        const MeshShape::Position place = mesh.position(rank, channel);
        ASSERT_EQ(place.size, mesh.position(0, channel).size);
        ASSERT_LT(place.index, place.size);
        ASSERT_TRUE(groups[place.group].insert(place.index).second) << text(mesh) << " " << name_of(channel);
      }
      for (const auto& [group, members] : groups)
        ASSERT_EQ(static_cast<int>(members.size()), mesh.position(0, channel).size) << text(mesh) << name_of(channel);
    }
}

// A key-value head is on neighbours of the tensor axis, which differ in nothing else.
TEST(Mesh, RanksOfAHeadAreNeighboursOfATensorGroup) {
  for (const MeshShape& mesh : shapes())
    for (int rank = 0; rank < mesh.size(); rank++) {
      const MeshShape::Position place = mesh.position(rank, Channel::heads);
      const int at = mesh.coordinate(rank, Axis::tensor);
      ASSERT_EQ(place.size, mesh.head_holders);
      ASSERT_EQ(place.index, at % mesh.head_holders) << text(mesh);
      ASSERT_EQ(place.group, rank - place.index * mesh.stride(Axis::tensor)) << text(mesh);
      ASSERT_EQ(mesh.position(place.group, Channel::tensor).group, mesh.position(rank, Channel::tensor).group);
    }
}

// Returns what gathers make of the parts, by number.
TEST(Mesh, GatheringBetweenNodesAndThenInsideNeedsNoReordering) {
  int spanning = 0;
  for (const MeshShape& mesh : shapes()) {
    const int nodes = mesh.shard_nodes();
    if (nodes == 1) continue;
    spanning++;
    std::map<int, std::map<int, std::vector<int>>> between, inside;  // group, index: parts
    for (int rank = 0; rank < mesh.size(); rank++) {
      const MeshShape::Position place = mesh.position(rank, Channel::between_nodes);
      between[place.group][place.index] = {mesh.coordinate(rank, Axis::shard)};
    }
    const auto gathered = [](const std::map<int, std::vector<int>>& members) {
      std::vector<int> all;
      for (const auto& [index, parts] : members) all.insert(all.end(), parts.begin(), parts.end());
      return all;
    };
    for (int rank = 0; rank < mesh.size(); rank++) {
      const MeshShape::Position place = mesh.position(rank, Channel::in_node);
      inside[place.group][place.index] = gathered(between[mesh.position(rank, Channel::between_nodes).group]);
    }
    std::vector<int> in_order;
    for (int s = 0; s < mesh.shard; s++) in_order.push_back(s);
    for (const auto& [group, members] : inside) ASSERT_EQ(gathered(members), in_order) << text(mesh);
  }
  EXPECT_GT(spanning, 100);
}

TEST(Mesh, ChannelsOfAShardGroupStayWhereTheirNamesSay) {
  for (const MeshShape& mesh : shapes()) {
    if (mesh.shard_nodes() == 1) continue;
    for (int a = 0; a < mesh.size(); a++)
      for (int b = 0; b < mesh.size(); b++) {
        const auto together = [&](Channel channel) {
          return mesh.position(a, channel).group == mesh.position(b, channel).group;
        };
        if (together(Channel::in_node)) {
          ASSERT_EQ(mesh.node(a), mesh.node(b)) << text(mesh);
        }
        if (together(Channel::between_nodes) && a != b) {
          ASSERT_NE(mesh.node(a), mesh.node(b)) << text(mesh);
        }
        if (together(Channel::in_node) || together(Channel::between_nodes)) {
          ASSERT_TRUE(together(Channel::shard)) << text(mesh);
        }
      }
  }
}

}  // namespace
}  // namespace megalith
