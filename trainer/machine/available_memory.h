// Finds how much memory is left for this process: of its machine, and of its control groups (cgroups v1 and v2), where
// the system kills a process without notice when one is full.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

struct AvailableMemory {
  int64_t bytes = 0;       // shared by all processes in the same groups
  std::string group = {};  // the control group that leaves the least, "/docker/1f"; empty: the machine leaves less
  int64_t limit = -1;      // that group's; -1: none
};

// Subtracts huge pages, which nothing here uses, from the machine's memory and used memory but not file caches, which
// the system can free, from a group's limit; the smallest result on the path to the root counts. `root` stands for / in
// tests.
AvailableMemory available_memory(const std::string& root = "");

}  // namespace megalith
