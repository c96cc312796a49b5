// The dry run executes one step of every rank of a job on one machine without devices.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "trainer/planner/matcher.h"
#include "trainer/step/process_memory.h"
#include "trainer/step/rehearsal.h"

namespace megalith {

struct DryRun {
  MeshShape mesh;
  cuda::Chip chip{};
  std::vector<MemorySizes> memory;         // peaks by rank
  std::vector<int64_t> sample_caches;      // by rank: Rehearsal::sample_cache
  std::vector<ProcessMemory> process;      // by rank, on a CPU with one thread: in addition to `memory`
  std::vector<int64_t> saved;              // by rank: Rehearsal::saved
  std::vector<std::vector<OpRecord>> ops;  // by rank
  Traces traces;
  std::vector<std::string> faults;  // found by the matcher
};

// config.model.vocab must be set. Takes about 10 ms a rank for a 30B model. `chip`: the GPU; {} on a CPU.
DryRun dry_run(const Config& config, int num_ranks, const cuda::Chip& chip = {});

// Returns the tables that `megalith plan` prints: model, layout, memory, checkpoint, traffic, FLOPs and faults.
std::string report(const Config& config, const DryRun& run);

}  // namespace megalith
