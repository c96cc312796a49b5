// The dry run: the rehearsal of every rank of a job, on one machine and without devices, and what follows from it.
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
  std::vector<MemorySizes> memory;         // peaks by rank
  std::vector<ProcessMemory> process;      // beside them on a CPU, by rank, with one thread each
  std::vector<std::vector<OpRecord>> ops;  // of one step, by rank
  Traces traces;                           // of one step
  std::vector<std::string> faults;         // of the matcher; empty when every transfer meets its partners
};

// config.model.vocab must be set. About 10 ms a rank for a 30B model.
DryRun dry_run(const Config& config, int num_ranks);

// The table that `megalith plan` prints: model, layout, memory by class, traffic by channel and kind of link, FLOPs,
// faults.
std::string report(const Config& config, const DryRun& run);

}  // namespace megalith
