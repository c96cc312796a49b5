// What a row of a bench works with: a stream and memory on the CPU or on the GPU, inputs, and a clock.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/base/arena.h"
#include "kernels/device_queue.h"

namespace megalith::bench {

// Error: no GPU is here, in the words of bench/gpu.sh. Else the first one is selected.
void select_gpu();
// {"name": ...} and what else tells this device from others, as JSON.
std::string describe(World world);

struct Timing {
  double seconds = 0;  // the median
  double fastest = 0;
};

class Desk {
 public:
  // On a GPU with the kernels of a generation before its own, where one is named.
  Desk(World world, int64_t bytes, int generation = 0);

  // Small normal values: no denormals, no infinities, and not zeros, which draw less power than real data.
  Tensor tensor(DType t, Shape shape);
  Tensor zeros(DType t, Shape shape);
  Tensor tokens(int64_t n, int64_t V);

  // How long work takes once launched. `sets` are the same work on different memory, taken in turn, so that a GPU's
  // cache does not hold what a real step would have to fetch. On a GPU many launches are measured as one stretch, by
  // events, after so much other work that the GPU never waits for the host.
  Timing time(const std::vector<std::function<void()>>& sets, double seconds);

  // Bytes of memory that work must span to be fetched anew each time; 0 on the CPU, whose rows stay as they are.
  int64_t cold_bytes() const { return 3 * cache_; }

  World world;
  std::unique_ptr<DeviceQueue> queue;  // on the GPU
  Stream stream;
  Arena arena;

 private:
  double stretch(const std::function<void()>& work, int64_t fills);

  int64_t cache_ = 0;
  uint64_t count_ = 0;
  Tensor screen_;  // what is written to keep the GPU busy
  double fill_seconds_ = 0;
  device::OwnedEvent begin_, end_;
};

}  // namespace megalith::bench
