// What this machine has for a run, as `megalith info` prints it, and what of it would stop one: looked up without
// allocating or measuring anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/device.h"

namespace megalith {

// Of an InfiniBand, RoCE or EFA adapter, in the kernel's own words: "mlx5_0", "400 Gb/sec (4X NDR)", "ACTIVE".
struct NetworkPort {
  std::string device, rate, state;
};

struct Gpu {
  device::Properties properties;
  std::string unusable;  // as device::unusable; the properties are then those of no GPU
};

struct Inventory {
  std::string host, kernel, processor;
  int cores = 0;  // that this process may run on
  // Bytes. A limit that is not there is `unlimited`.
  static constexpr int64_t unlimited = -1;
  int64_t memory = 0, memory_limit = unlimited;  // of the machine; of the container, by its control group
  int64_t shared_files = 0;                      // free in /dev/shm, where ranks of a node exchange what they send
  int64_t locked_limit = unlimited;              // memory that a process may pin for a network adapter
  int64_t open_files = 0;
  std::vector<NetworkPort> ports;

  bool has_cuda = false;      // the build
  std::string architectures;  // of its CUDA code
  std::string cuda_error;     // of counting the GPUs, such as a driver that is too old
  std::vector<Gpu> gpus;
  std::vector<std::vector<device::Link>> links;  // between GPUs, from row to column
  std::string nccl_error;                        // why the library cannot be used
  // By name: Open MPI's own line, HDF5, oneDNN, and with CUDA runtime, driver and NCCL.
  std::vector<std::pair<std::string, std::string>> libraries;
};

// Selects each GPU in turn.
Inventory collect_inventory();

// What would stop a run on this machine, or make it wait where nobody would look for it, each with its remedy. Empty:
// nothing that is known of.
std::vector<std::string> problems(const Inventory& machine);

// Ends in the obstacles.
std::string describe(const Inventory& machine);

}  // namespace megalith
