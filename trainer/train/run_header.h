// Writes the log of a run before its first step.
#pragma once

#include "trainer/job/rank_context.h"
#include "trainer/step/process_memory.h"
#include "trainer/train/inputs.h"

namespace megalith {

// Logs the program, the model, the layout and the devices.
void log_run_header(const Config& config, const Session& session, const RankContext& work, int threads);

// Logs the data, the validation set if any, files that occur twice, and with isolated documents their number.
void log_data(const Config& config, const Inputs& inputs);

// Logs the planned memory of the fullest rank and its process.
void log_memory(const MemorySizes& memory, const ProcessMemory& process);

// Collective. Logs the disk space that checkpoints need, with a warning if it is not free.
void log_disk(const Config& config, const Session& session, int64_t bytes_of_rank, int64_t completed);

}  // namespace megalith
