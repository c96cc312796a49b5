#include "trainer/job/symmetric_memory.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/job/agreement.h"

namespace megalith {

namespace {
constexpr std::array candidates{Channel::tensor,        Channel::heads,   Channel::shard,
                                Channel::between_nodes, Channel::in_node, Channel::data};
}  // namespace

SymmetricMemoryPlan symmetric_memory_plan(const MeshShape& mesh, const std::vector<RankMemory>& ranks, int rank) {
  const RankMemory& mine = ranks[static_cast<size_t>(rank)];
  SymmetricMemoryPlan plan{.sizes = mine.sizes};
  const int stage = mesh.coordinate(rank, Axis::pipeline);
  for (int other = 0; other < mesh.size(); other++) {
    if (mesh.coordinate(other, Axis::pipeline) != stage) continue;
    for (MemoryClass c : classes_on(MemoryPlace::device)) {
      int64_t& bytes = plan.sizes.at(c, MemoryPlace::device);
      bytes = std::max(bytes, ranks[static_cast<size_t>(other)].sizes.at(c, MemoryPlace::device));
    }
  }
  for (const Channel channel : candidates) {
    const MeshShape::Position here = mesh.position(rank, channel);
    bool alike = mine.placements[static_cast<size_t>(channel)] != 0;
    for (int other = 0; other < mesh.size(); other++)
      alike = alike && (mesh.position(other, channel).group != here.group ||
                        ranks[static_cast<size_t>(other)].placements[static_cast<size_t>(channel)] ==
                            mine.placements[static_cast<size_t>(channel)]);
    if (alike) plan.channels.push_back(channel);
  }
  return plan;
}

std::string SymmetricMemoryPlan::in_words() const {
  std::string names;
  for (const Channel channel : channels) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(channel));
  return "symmetric memory in " + (names.empty() ? "no group" : names);
}

std::vector<RankMemory> memory_of_all_ranks(const Session& session, const RankMemory& mine) {
  std::vector<RankMemory> all;
  for (const auto& theirs : json_of_all_ranks(session, {{"sizes", mine.sizes.bytes}, {"placements", mine.placements}}))
    all.push_back({.sizes = {theirs.at("sizes").get<decltype(MemorySizes::bytes)>()},
                   .placements = theirs.at("placements").get<std::vector<uint64_t>>()});
  return all;
}

void use_symmetric(Runtime& runtime, const std::vector<Channel>& channels) {
  for (const Channel channel : channels)
    for (MemoryClass c : classes_on(MemoryPlace::device))
      if (const Arena& arena = runtime.memory[c]; arena.memory())
        runtime.mesh.channel(channel).use_symmetric(arena.memory(), arena.capacity());
}

}  // namespace megalith
