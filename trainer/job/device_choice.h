// Chooses where a job computes, and the GPU of each rank.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/stream/stream.h"
#include "trainer/session/session.h"

namespace megalith {

// Each rank reports this to the others before they decide.
struct GpuOffer {
  int gpus = 0;
  int ranks_on_node = 1, rank_on_node = 0;
  std::string unusable = {};  // why its GPU cannot be used (device::unusable)
};

struct DeviceChoice {
  World world = World::cpu;
  std::string why_cpu = {};  // set if a build with CUDA uses the CPU without being told to
  int ranks = 1;             // on this rank's GPU
};

// Returns the same world on all ranks. run.device = auto uses GPUs if every rank sees a usable one. If a rank sees only
// one GPU, the launcher assigned it. With Backend::mpi ranks may share a GPU. Throws Error if the build has no CUDA,
// there is no GPU, some nodes have none, one cannot be used, or with NCCL a node has fewer GPUs than ranks.
DeviceChoice choose_world(Device wanted, Backend backend, const std::vector<GpuOffer>& of_all_ranks);

// Returns the GPU of a rank; the ranks of a node take turns.
int gpu_of(const GpuOffer& offer);

// Throws Error if two ranks have selected the same GPU.
void check_each_has_its_own(const std::vector<std::string>& ids);

// Returns the dense bf16 FLOP/s of a GPU from NVIDIA's data sheets, or 0 for an unlisted one or a MIG slice.
// Utilization is relative to this, whatever the compute type.
double peak_flops(const std::string& gpu);

// Collective. Decides by run.device, by the devices on the ranks' nodes and by their transport, and selects this rank's
// GPU. Errors, on all ranks: those above, or ranks started without MPI have no transport for this world.
DeviceChoice choose_device(const Config& config, const Session& session);

}  // namespace megalith
