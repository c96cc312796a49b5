// In every layout the tensors of a group lie at the same offsets on all its ranks, as NCCL wants it of symmetric
// memory; and a group where they did not goes without.
#include "trainer/job/symmetric_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/pure/program_layouts.h"
#include "tests/pure/small_run.h"

namespace megalith {
namespace {

std::vector<RankMemory> rehearsed(const Config& config, int ranks) {
  std::vector<RankMemory> all;
  for (int rank = 0; rank < ranks; rank++) {
    const Rehearsal rehearsal = rehearse(config, make_plan(config, ranks, rank));
    all.push_back({rehearsal.memory, rehearsal.placements});
  }
  return all;
}

// Those that have transfers, but for pipelines and the world.
std::vector<Channel> groups_in_use(const RankMemory& rank) {
  std::vector<Channel> groups;
  for (const Channel channel :
       {Channel::tensor, Channel::heads, Channel::shard, Channel::between_nodes, Channel::in_node, Channel::data})
    if (rank.placements[static_cast<size_t>(channel)] != 0) groups.push_back(channel);
  return groups;
}

class SymmetricMemoryOf : public testing::TestWithParam<test::Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, SymmetricMemoryOf, testing::ValuesIn(test::program_layouts::layouts()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(SymmetricMemoryOf, TensorsOfAGroupHaveTheSameOffsets) {
  Config config = small_config();
  config.model = {.layers = 6, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = 10, .microbatch_size = 1};
  GetParam().change(config);
  config = resolve(config);
  const MeshShape mesh = mesh_shape(config, GetParam().ranks);
  const std::vector<RankMemory> ranks = rehearsed(config, GetParam().ranks);
  for (int rank = 0; rank < mesh.size(); rank++) {
    const SymmetricMemoryPlan plan = symmetric_memory_plan(mesh, ranks, rank);
    EXPECT_EQ(plan.channels, groups_in_use(ranks[static_cast<size_t>(rank)])) << mesh.describe(rank);
    // Muon's matrices have owners.
    if (config.optimizer.algorithm != Algorithm::muon) {
      EXPECT_EQ(plan.sizes, ranks[static_cast<size_t>(rank)].sizes) << mesh.describe(rank);
    }
  }
}

Config of_tensor_and_shard() {
  Config config = small_config();
  config.parallel.tensor_parallel_degree = 3;
  config.parallel.sharded_data_parallel_degree = 2;
  return resolve(config);
}

TEST(SymmetricMemory, ARankWithOtherOffsetsLeavesItsGroupsWithout) {
  const Config config = of_tensor_and_shard();
  const MeshShape mesh = mesh_shape(config, 12);
  std::vector<RankMemory> ranks = rehearsed(config, 12);
  ranks[7].placements[static_cast<size_t>(Channel::shard)]++;
  std::map<Channel, std::vector<int>> with;
  for (int rank = 0; rank < 12; rank++)
    for (const Channel channel : symmetric_memory_plan(mesh, ranks, rank).channels) with[channel].push_back(rank);
  EXPECT_EQ(with[Channel::tensor].size(), 12U);
  EXPECT_EQ(with[Channel::data].size(), 12U);
  EXPECT_EQ(with.size(), 3U);
  EXPECT_EQ(with[Channel::shard], (std::vector{0, 1, 2, 3, 4, 5, 6, 8, 9, 11})) << "7 and 10 are a group";
}

TEST(SymmetricMemory, ArenasAreAsLargeAsAnyOfTheirStage) {
  MeshShape mesh;
  mesh.shard = mesh.pipeline = 2;
  std::vector<RankMemory> ranks(4);
  for (size_t rank = 0; rank < 4; rank++) {
    ranks[rank].placements.resize(num_channels);
    ranks[rank].placements[static_cast<size_t>(Channel::shard)] = 5;
    ranks[rank].sizes.at(MemoryClass::scratch, MemoryPlace::device) = 100 + static_cast<int64_t>(rank);
    ranks[rank].sizes.at(MemoryClass::checkpoint, MemoryPlace::host) = 7 + static_cast<int64_t>(rank);
  }
  for (int rank = 0; rank < 4; rank++) {
    const SymmetricMemoryPlan plan = symmetric_memory_plan(mesh, ranks, rank);
    EXPECT_EQ(plan.sizes.at(MemoryClass::scratch, MemoryPlace::device), rank < 2 ? 101 : 103);
    EXPECT_EQ(plan.sizes.at(MemoryClass::checkpoint, MemoryPlace::host), 7 + rank);
    EXPECT_EQ(plan.in_words(), "symmetric memory in shard");
  }
  EXPECT_EQ(SymmetricMemoryPlan{}.in_words(), "symmetric memory in no group");
}

// The number does not depend on where a rank's own part of a gather lies, which NCCL reads on that rank alone.
TEST(SymmetricMemory, PlacementsTellOffsetsApart) {
  const auto placement = [](int rank, int64_t shift, bool in_place, const char* name = "scratch") {
    Stream s(World::dry);
    Arena arena(World::dry, name, 0);
    const auto group = dry_communicator("group", static_cast<int>(Channel::shard), rank, 2);
    arena.tensor(DType::f32, {shift});
    const Tensor whole = arena.tensor(DType::f32, {128}), other = arena.tensor(DType::f32, {64});
    group->all_gather(s, whole, in_place ? whole.flat(rank * 64, rank * 64 + 64) : other).wait();
    group->reduce_scatter(s, other, whole).wait();
    return group->placement();
  };
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(placement(0, 64, in_place), placement(1, 64, in_place));
    EXPECT_NE(placement(0, 64, in_place), placement(1, 128, in_place));
  }
  EXPECT_NE(placement(0, 64, false), placement(0, 64, true));
  std::set<uint64_t> by_arena;
  for (const MemoryClass c : all_memory_classes) by_arena.insert(placement(0, 64, false, name_of(c)));
  EXPECT_EQ(std::ssize(by_arena), num_memory_classes);
}

}  // namespace
}  // namespace megalith
