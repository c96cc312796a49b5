// Whether the memory that runs are planned to take is free, before it is taken: each place against its own capacity.
#pragma once

#include <vector>

#include "kernels/base/stream.h"
#include "trainer/machine/available_memory.h"
#include "trainer/parallel/runtime.h"

namespace megalith {

// A run: where it computes, the peaks of this rank and, on the CPU, what its process takes beside them.
struct MemoryNeed {
  World world;
  MemorySizes sizes;
  int64_t process = 0;
};

// `runs` coexist, on each of the ranks of this node and of this rank's GPU, and all ranks need what this one
// does. Errors: those of the two below.
void check_memory(const std::vector<MemoryNeed>& runs, int ranks_on_node, int ranks_on_gpu);

// Error: the ranks together need more than is left of the node: both places of runs on the CPU, the host's of runs on
// GPUs.
void check_node_memory(const std::vector<MemoryNeed>& runs, int ranks, const AvailableMemory& available);

// Error: the GPU that is selected has not the device's share free for each of its ranks, with the plan's table.
// queues_made: each of these ranks has its DeviceQueue already.
void check_gpu_memory(const MemorySizes& planned, int ranks, bool queues_made = false);

}  // namespace megalith
