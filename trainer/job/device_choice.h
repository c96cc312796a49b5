// Where a job computes, and on which GPU a rank does, if on any.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/base/stream.h"
#include "trainer/session/session.h"

namespace megalith {

// What each rank reports to the others before they decide: how many GPUs it sees, how many ranks share its node, and
// why the GPU that it would take cannot be used (device::unusable).
struct GpuOffer {
  int gpus = 0;
  int ranks_on_node = 1, rank_on_node = 0;
  std::string unusable = {};
};

struct WorldChoice {
  World world = World::cpu;
  std::string why_cpu = {};  // where a build with CUDA takes the CPU unasked
};

// The world that all ranks compute in, the same answer on all of them. run.device = auto takes GPUs where every rank
// sees one that can be used. A rank that sees one GPU only has been given it by the launcher. With Backend::mpi ranks
// may share a GPU. Errors: no CUDA in the build, no GPU, GPUs on some nodes only, one that cannot be used, and with
// NCCL fewer GPUs on a node than ranks.
WorldChoice choose_world(Device wanted, Backend backend, const std::vector<GpuOffer>& of_all_ranks);

// The GPU of a rank: they are dealt out among the ranks of the node.
int gpu_of(const GpuOffer& offer);

// `ids` are the GPUs selected by all ranks. Error: two ranks have one.
void check_each_has_its_own(const std::vector<std::string>& ids);

// Dense bf16 FLOP/s of a GPU by its name, from NVIDIA's data sheets; 0 for one that is not listed, or a slice of one.
// What utilization is quoted against, whatever the type computed in.
double peak_flops(const std::string& gpu);

struct DeviceChoice {
  World world = World::cpu;
  int ranks = 1;             // that compute on this rank's GPU
  std::string why_cpu = {};  // as in WorldChoice
};

// Collective. What run.device asks for, against what the ranks find on their nodes and how they communicate; on GPUs,
// this rank's is then selected. Errors, on all ranks: those above; nothing carries tensors of this world between ranks
// that were started without MPI.
DeviceChoice choose_device(const Config& config, const Session& session);

// The same for a process alone, which takes the first GPU.
WorldChoice choose_device(Device wanted);

}  // namespace megalith
