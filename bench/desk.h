// The environment of a benchmark row: a stream and memory on the CPU or the GPU, inputs, and a clock.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"

namespace megalith::bench {

// Selects the first GPU. Error without a GPU, in the words of bench/gpu.sh.
void select_gpu();
// Returns {"name": ...} and what else identifies this device, as JSON.
std::string describe(World world);

struct Timing {
  double seconds = 0;  // the median
  double fastest = 0;
};

class Desk {
 public:
  // On a GPU, `generation` selects the kernels of an older one.
  Desk(World world, int64_t bytes, int generation = 0);

  // Makes small normal values: no denormals, no infinities, and not zeros, which draw less power than real data.
  Tensor tensor(DType t, Shape shape);
  Tensor zeros(DType t, Shape shape);
  Tensor tokens(int64_t n, int64_t V);

  // Returns the time of the work after its launch. `sets` do the same on different memory, in turn, so that a GPU's
  // cache does not hold what a step would have to fetch. On a GPU events measure many launches at once, behind enough
  // other work that the GPU never waits for the host.
  Timing time(const std::vector<std::function<void()>>& sets, double seconds);

  // Returns the bytes that work must span to miss the cache each time; 0 on the CPU.
  int64_t cold_bytes() const { return 3 * cache_; }

  World world;
  std::unique_ptr<DeviceQueue> queue;  // on the GPU
  Stream stream;
  Arena arena;

 private:
  double stretch(const std::function<void()>& work, int64_t fills);

  int64_t cache_ = 0;
  uint64_t count_ = 0;
  Tensor screen_;  // written to keep the GPU busy
  double fill_seconds_ = 0;
  device::OwnedEvent begin_, end_;
};

}  // namespace megalith::bench
