// Decides which groups of a job use the memory of a run as symmetric memory (Communicator::use_symmetric). NCCL
// accesses such memory of another rank at the offset that a tensor has on this one, and cannot detect a different
// offset there. So ranks compare the offsets of all transfers of their rehearsals. Tensors of a group normally have the
// same offsets, since its ranks run one program on equal shapes; a group where they differ does not use symmetric
// memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/communication/mesh.h"
#include "trainer/parallel/runtime.h"
#include "trainer/session/session.h"

namespace megalith {

// The result of a rank's rehearsal, for the other ranks.
struct RankMemory {
  MemorySizes sizes{};
  std::vector<uint64_t> placements{};  // by channel
};

struct SymmetricMemoryPlan {
  MemorySizes sizes{};              // of the run; on the device as large as on any rank of the stage
  std::vector<Channel> channels{};  // whose groups use it, on this rank
  std::string in_words() const;     // "symmetric memory in tensor, shard"
};

// Pure. Before NCCL 2.30 a window must have the same size on all ranks of a group, and groups are inside a stage of the
// pipeline. Messages of pipelines and the few numbers of the world do not use it, nor do groups that transfer nothing.
SymmetricMemoryPlan symmetric_memory_plan(const MeshShape& mesh, const std::vector<RankMemory>& ranks, int rank);

// Collective. Returns the memory of every rank, in rank order.
std::vector<RankMemory> memory_of_all_ranks(const Session& session, const RankMemory& mine);

// Collective. Registers the arenas on the device with the groups. They must be empty.
void use_symmetric(Runtime& runtime, const std::vector<Channel>& channels);

}  // namespace megalith
