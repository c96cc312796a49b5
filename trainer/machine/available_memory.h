// Finds how much memory is left for this process: on its machine, and in its control groups (cgroups v1 and v2), where
// the system kills a process without notice when one is full.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

struct AvailableMemory {
  int64_t bytes = 0;       // shared by all processes in the same groups
  std::string group = {};  // the control group with the least left, "/docker/1f"; empty: the machine has less
  int64_t limit = -1;      // limit of that group; -1: no group
};

// Subtracts huge pages, which Megalith does not use, from the machine's memory. Subtracts used memory, but not file
// caches, which the system can free, from a group's limit. The smallest result on the path to the root counts. `root`
// replaces / in tests.
AvailableMemory available_memory(const std::string& root = "");

}  // namespace megalith
