// Checks that the planned memory of runs is free before it is allocated: host and GPU memory separately.
#pragma once

#include <vector>

#include "kernels/stream/stream.h"
#include "trainer/machine/available_memory.h"
#include "trainer/parallel/runtime.h"

namespace megalith {

// Holds the planned memory of a run on this rank.
struct MemoryNeed {
  World world;
  MemorySizes sizes;
  int64_t process = 0;  // bytes of the process besides `sizes`, on the CPU
};

// Checks host and GPU for `runs`, which coexist on each rank of this node; assumes equal needs of all ranks.
void check_memory(const std::vector<MemoryNeed>& runs, int ranks_on_node, int ranks_on_gpu);

// Throws Error if the ranks together need more host memory than is available.
void check_node_memory(const std::vector<MemoryNeed>& runs, int ranks, const AvailableMemory& available);

// Throws Error, with the plan's table, if the selected GPU has too little free memory for its `ranks`. `queues_made`:
// each of these ranks already has its DeviceQueue.
void check_gpu_memory(const MemorySizes& planned, int ranks, bool queues_made = false);

}  // namespace megalith
