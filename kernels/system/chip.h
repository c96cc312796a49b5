// The properties of a GPU by which ops choose their kernels and their scratch memory.
#pragma once

#include <cstdint>

namespace megalith::cuda {

struct Chip {
  int generation = 0;         // the compute capability's major number, 9 for Hopper
  int64_t shared_memory = 0;  // bytes that a block can have, the kernel's own variables included
};

}  // namespace megalith::cuda
