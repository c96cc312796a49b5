// What the machine under a rank has: threads and memory.
#pragma once

#include <cstdint>

namespace megalith {

// Sets the number of OpenMP threads of this process and returns it: OMP_NUM_THREADS when set, else the cores of the
// machine dealt out among its ranks (and never more than this process may run on).
int use_threads(int ranks_on_this_node);

// Bytes of physical memory.
int64_t physical_memory();

}  // namespace megalith
