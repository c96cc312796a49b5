// Compares a config under each value of one option, for `megalith plan --compare KEY`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/planner/prediction.h"

namespace megalith {

struct Compared {
  std::string value;
  std::string refused{};    // error of the config; the other members are then empty
  MemorySizes memory{};     // peak of the fullest stage's device
  int64_t on_host = 0;      // bytes a rank, fullest stage
  bool fits = true;         // also true if no machines are known
  double flops = 0;         // hardware FLOPs over model FLOPs with causal attention
  double tokens = 0;        // tokens/s; 0: no machines are known
  std::string no_better{};  // another value that needs no more memory and no more work
};

struct Comparison {
  std::string key;
  std::vector<std::string> values;
};
// Reads "KEY=VALUE,VALUE" or "KEY", which means all its choices; group_N means groups of 2, 4 ... layers.
Comparison comparison_of(const std::string& text, const Config& config);

// Predicts no time without `hardware`. config.model.vocab must be set.
Compared compare(const std::string& value, const Config& config, const std::optional<Hardware>& hardware,
                 int num_ranks);

// Returns the table, which names for each value another that is at least as good, if any.
std::string report(const std::string& key, std::vector<Compared> all);

}  // namespace megalith
