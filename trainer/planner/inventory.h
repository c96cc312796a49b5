// Lists the hardware and libraries of this machine that a run uses, and problems that would stop one, without
// measuring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/stream/device.h"

namespace megalith {

// Describes an InfiniBand, RoCE or EFA port as the kernel does: "mlx5_0", "400 Gb/sec (4X NDR)", "ACTIVE".
struct NetworkPort {
  std::string device, rate, state;
};

struct Gpu {
  device::Properties properties;
  std::string unusable;  // the reason; empty: usable, and `properties` are set
};

struct Inventory {
  std::string host, kernel, processor;
  int cores = 0;  // available to this process
  static constexpr int64_t unlimited = -1;
  int64_t memory = 0, memory_limit = unlimited;  // bytes: of the machine; the limit of its container
  int64_t shared_files = 0;                      // bytes free in /dev/shm
  int64_t locked_limit = unlimited;              // bytes a process may pin
  int64_t open_files = 0;
  std::vector<NetworkPort> ports;

  bool has_cuda = false;      // this build's
  std::string architectures;  // CUDA targets of this build
  std::string cuda_error;     // error while counting the GPUs
  std::vector<Gpu> gpus;
  std::vector<std::vector<device::Link>> links;  // links[a][b]: from GPU a to GPU b
  std::string nccl_error;
  std::vector<std::pair<std::string, std::string>> libraries;  // names, versions
};

// Selects each GPU in turn.
Inventory collect_inventory();

// Returns what would stop or slow down a run on this machine, each with its remedy.
std::vector<std::string> problems(const Inventory& machine);

std::string describe(const Inventory& machine);

}  // namespace megalith
