// How much memory is left for this process: of its machine, and of the control groups (cgroups v1 and v2) that it is
// in, of which the system kills a process in silence when one is full.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

struct AvailableMemory {
  int64_t bytes = 0;  // that are left, for all processes together that are in the same groups
  // The control group that leaves the least, "/docker/1f", if that is less than the machine; else empty.
  std::string group = {};
  int64_t limit = -1;  // of that group; -1: none
};

// The machine has its memory less what is set aside as huge pages, which nothing here uses. A group has its limit less
// what is used in it and cannot be given back, as file caches can; the smallest on the way from this process's group up
// counts. `root`: a folder that stands for /, for tests.
AvailableMemory available_memory(const std::string& root = "");

}  // namespace megalith
