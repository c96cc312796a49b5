// `megalith plan --compare KEY`: a config under each value of one option, side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/planner/prediction.h"

namespace megalith {

struct Compared {
  std::string value;
  std::string refused{};    // why there is no such config; the rest is empty then
  MemorySizes memory{};     // of the stage that is fullest on its device
  int64_t on_host = 0;      // bytes of a rank, of the stage that is fullest there
  bool fits = true;         // on the devices and their hosts, where they are known
  double flops = 0;         // hardware over model FLOPs, attention counted as causal
  double tokens = 0;        // a second; 0: no machines are known
  std::string no_better{};  // a value that takes no more memory and no more work; empty: none
};

// The values to compare: those of "KEY=VALUE,VALUE", or all choices of "KEY"; of group_N, those of 2, 4 ... layers.
struct Comparison {
  std::string key;
  std::vector<std::string> values;
};
Comparison comparison_of(const std::string& text, const Config& config);

// Without `hardware` no time is predicted. config.model.vocab must be set.
Compared compare(const std::string& value, const Config& config, const std::optional<Hardware>& hardware,
                 int num_ranks);

// Says of each which other one is no worse, and prints them.
std::string report(const std::string& key, std::vector<Compared> all);

}  // namespace megalith
