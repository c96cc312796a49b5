// A rehearsal is one rank's real step in the dry world: nothing is executed or allocated, and the result is what the
// run will need. Training takes its arenas' sizes from it, and planning is a rehearsal of every rank.
#pragma once

#include <vector>

#include "trainer/step/trainer.h"

namespace megalith {

struct Rehearsal {
  MemorySizes memory{};           // peaks, bytes
  std::vector<OpRecord> ops;      // one training step's
  GraphCounts graphs{};           // one training step's, once they are made
  GemmCounts gemms;               // its matrix products
  std::vector<TraceEvent> trace;  // one training step's
  int64_t saved = 0;              // bytes of a checkpoint that this rank writes
  int64_t sample_cache = 0;       // bytes of `memory` for the cached keys and values of texts (train.sample_every)
  // By channel, over the whole rehearsal: Communicator::placement.
  std::vector<uint64_t> placements{};
};

// config.model.vocab must be set.
Rehearsal rehearse(const Config& config, const Plan& plan, TraceLevel level = TraceLevel::transfers);

}  // namespace megalith
