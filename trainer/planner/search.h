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
  std::vector<Candidate> best;  // the fastest first
  int64_t tried = 0, too_large = 0, too_slow = 0;
  // Bytes that a node's host would have to hold for the smallest of the layouts that fit the devices and not the hosts.
  int64_t least_on_host = 0;
};

// Chooses degrees, stages, sharding, microbatch size and recomputation; every other key of [parallel] gets its default,
// and nothing of the model, the batch or the numbers' types changes. What needs more than a device has is dropped, and,
// without a rehearsal, what cannot be among the `most` fastest even if nothing but its GEMMs and its pipeline's bubble
// took time. config.model.vocab must be set.
Search search(const Config& config, const Hardware& hardware, int num_ranks, size_t most);

// The table that `megalith search` prints.
std::string report(const Search& search, const Hardware& hardware);

}  // namespace megalith
