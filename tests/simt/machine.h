// The fibers and the watched memory of the machine know this of each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simt/simt.h"
#include "tests/simt/warp_clocks.h"

namespace megalith::simt {

// Who makes an access, and what is ordered before it.
struct Actor {
  uint32_t block;                // a number of its own for every block ever run
  uint32_t first;                // block number of the launch's first block
  const WarpClocks::Row* knows;  // its warp's row
  uint16_t thread, warp;
};

// The thread that runs, as every access asks for it; the fibers keep it.
struct Running {
  int thread = -1;  // none: the host runs
  Actor actor{};
  dim3 index;
};
extern Running running;
extern WarpClocks clocks;  // belong to the running block
inline bool in_kernel() { return running.thread >= 0; }

// The memory's side.
// Shared memory of the launch: dynamic, and the most that it may be together with the static.
void begin_launch(int64_t shared_bytes, int64_t most_shared_bytes);
void begin_block();
// The thread has shared memory written for it: until it writes there itself, nobody may read it.
void begins_to_write(void* shared, int64_t bytes);
int64_t accesses();
// A product of a warpgroup whose warps all know this reads shared memory.
void reads_of_product(const void* p, int64_t bytes, const WarpClocks::Row& known);

}  // namespace megalith::simt
