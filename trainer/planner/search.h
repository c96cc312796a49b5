// Searches the layouts of a config's model and batch on given machines for the fastest by prediction.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "configs/config.h"
#include "configs/hardware.h"
#include "trainer/planner/prediction.h"

namespace megalith {

struct Candidate {
  Config config;
  Prediction prediction;
  int64_t device_bytes = 0;  // fullest stage, without the reserved bytes
};

struct Search {
  std::vector<Candidate> best;  // the fastest first
  int64_t tried = 0, too_large = 0, too_slow = 0;
  int64_t least_on_host = 0;  // bytes a node of the smallest layout that fits the devices but not the hosts
  bool ended_early = false;   // by its watch; then the best steps are extrapolated from fewer microbatches
};

// A watch gets the searched share of the layouts and the best so far, after each group of layouts, from one thread at a
// time. It returns whether the search continues.
using SearchWatch = std::function<bool(double share, const Search& found)>;

// Chooses degrees, stages, schedule (all but gpipe), sharding, microbatch size and recomputation; every other key of
// [parallel] gets its default. Drops layouts that do not fit and, without a dry run, those whose GEMMs and bubble alone
// take longer than the `most` fastest. config.model.vocab must be set.
Search search(const Config& config, const Hardware& hardware, int num_ranks, size_t most,
              const SearchWatch& watch = {});

// Returns the table that `megalith search` prints.
std::string report(const Search& search, const Hardware& hardware);

}  // namespace megalith
