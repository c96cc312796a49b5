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
  std::string why_cpu = {};  // set where a build with CUDA takes the CPU unasked
  int ranks = 1;             // on this rank's GPU
};

// Returns the same world on all ranks. run.device = auto takes GPUs where every rank sees a usable one. A rank that
// sees one GPU only was given it by the launcher. With Backend::mpi ranks may share a GPU. Throws Error where the build
// has no CUDA, there is no GPU, some nodes have none, one cannot be used, or with NCCL a node has fewer GPUs than
// ranks.
DeviceChoice choose_world(Device wanted, Backend backend, const std::vector<GpuOffer>& of_all_ranks);

// Returns the GPU of a rank; the ranks of a node take turns.
int gpu_of(const GpuOffer& offer);

// Throws Error where two of the GPUs that the ranks have selected are the same.
void check_each_has_its_own(const std::vector<std::string>& ids);

// Returns the dense bf16 FLOP/s of a GPU from NVIDIA's data sheets, or 0 for an unlisted one or a MIG slice.
// Utilization is relative to this, whatever the compute type.
double peak_flops(const std::string& gpu);

// Collective. Decides by run.device, by what the ranks find on their nodes and by how they communicate, and selects
// this rank's GPU. Errors, on all ranks: those above, or ranks started without MPI have no transport for this world.
DeviceChoice choose_device(const Config& config, const Session& session);

}  // namespace megalith
