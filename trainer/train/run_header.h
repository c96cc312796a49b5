// These functions write what the log of a run says before its first step.
#pragma once

#include "trainer/job/workplace.h"
#include "trainer/step/process_memory.h"
#include "trainer/step/text_data.h"

namespace megalith {

// The program, the model, the layout and the devices.
void log_run_header(const Config& config, const Session& session, const Workplace& work, int threads);

// The data and, unless it is null, the held-out data; where documents are kept apart, how many there are.
void log_data(const Config& config, const Loader& data, const HeldOut* held_out, bool trained_on_held_out);

// The planned memory of the fullest rank and, unless that is nothing, what its process takes beside it.
void log_memory(const MemorySizes& memory, const ProcessMemory& process);

// Collective: the disk that the checkpoints take, of which each rank writes so many bytes; a warning where it is not
// free.
void log_disk(const Config& config, const Session& session, int64_t bytes_of_rank, int64_t completed);

}  // namespace megalith
