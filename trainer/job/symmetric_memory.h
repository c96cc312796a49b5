// Decides which groups of a job use the memory of a run as symmetric memory (Communicator::use_symmetric). NCCL reads
// and writes such memory of another rank at the offset that a tensor has here, and cannot see that it has another one
// there. So ranks compare the offsets of all transfers of their rehearsals. Tensors of a group have the same offsets,
// since its ranks run one program on shapes that are alike; a group where they had not goes without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/communication/mesh.h"
#include "trainer/parallel/runtime.h"
#include "trainer/session/session.h"

namespace megalith {

// A rank tells the others what its rehearsal found.
struct RankMemory {
  MemorySizes sizes{};
  std::vector<uint64_t> placements{};  // by channel
};

struct SymmetricMemoryPlan {
  MemorySizes sizes{};              // those of the run; on the device as large as on any rank of the stage
  std::vector<Channel> channels{};  // whose groups use it, on this rank
  std::string in_words() const;     // "symmetric memory in tensor, shard"
};

// Pure. A window must be of one size on all ranks of a group before NCCL 2.30, and groups lie within a pipeline's
// stage. Messages of pipelines and the few numbers of the world go without, and so do groups that transfer nothing.
SymmetricMemoryPlan symmetric_memory_plan(const MeshShape& mesh, const std::vector<RankMemory>& ranks, int rank);

// Collective. Returns every rank's, in rank order.
std::vector<RankMemory> memory_of_all_ranks(const Session& session, const RankMemory& mine);

// Collective. Registers the arenas on the device with the groups. They must hold nothing yet.
void use_symmetric(Runtime& runtime, const std::vector<Channel>& channels);

}  // namespace megalith
