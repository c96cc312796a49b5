// The search: every layout of a config's model and batch on given machines that is worth a try, by predicted time.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "configs/hardware.h"
#include "trainer/planner/prediction.h"

namespace megalith {

struct Candidate {
  Config config;
  Prediction prediction;
  int64_t device_bytes = 0;  // of the fullest stage, beside what is reserved
};

struct Search {
  std::vector<Candidate> fitting;  // the fastest first
  int64_t tried = 0, too_large = 0;
};

// Changes degrees, stages, sharding, microbatch size and recomputation of [parallel], [batch] and [memory], and nothing
// of the model, the batch or the numbers' types. Ranks are all devices of hardware.nodes. What needs more than a device
// has is dropped. config.model.vocab must be set.
Search search(const Config& config, const Hardware& hardware, int num_ranks);

// The table that `megalith search` prints, of the first so many.
std::string report(const Search& search, const Hardware& hardware, size_t most);

}  // namespace megalith
