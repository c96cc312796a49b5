// A queue for ops on the selected GPU, with its stream, its workspace and its GEMM library. Each Stream has one, which
// outlives it. Error: a build without CUDA.
#pragma once

#include "kernels/linear/gemm_cuda.h"
#include "kernels/stream/device.h"
#include "kernels/stream/queue_cuda.h"

namespace megalith {

class DeviceQueue {
 public:
  DeviceQueue() : stream_(device::make_stream(false)) {}

  // Workspace memory, which the plan does not count.
  static constexpr int64_t bytes = cuda::workspace_bytes;

  static cuda::Chip chip_of(const device::Properties& gpu) { return {gpu.major, gpu.shared_memory}; }

  cuda::Queue queue() {
    return {.stream = stream_.get(), .workspace = workspace_.get(), .gemm = &gemm_, .chip = chip_};
  }

 private:
  device::OwnedStream stream_;
  device::Memory workspace_ = device::allocate(bytes, "the workspace of ops");
  cuda::Gemm gemm_;
  cuda::Chip chip_ = chip_of(device::properties());
};

}  // namespace megalith
