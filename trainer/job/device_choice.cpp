#include "trainer/job/device_choice.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "kernels/stream/device.h"
#include "kernels/system/counted.h"
#include "trainer/job/agreement.h"

namespace megalith {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuOffer, gpus, ranks_on_node, rank_on_node, unusable)

DeviceChoice choose_world(Device wanted, Backend backend, const std::vector<GpuOffer>& of_all_ranks) {
  if (wanted == Device::cpu || (wanted == Device::automatic && !device::in_build())) return {World::cpu};
  CHECK(device::in_build(),
        "run.device = cuda: this build has no CUDA; use run.device=cpu, or configure with: cmake --preset cuda");
  const auto without = std::ranges::find(of_all_ranks, 0, &GpuOffer::gpus);
  if (without != of_all_ranks.end()) {
    const bool none = std::ranges::count(of_all_ranks, 0, &GpuOffer::gpus) == std::ssize(of_all_ranks);
    const char* nothing = "this machine has no NVIDIA GPU, or no driver, or CUDA_VISIBLE_DEVICES hides it";
    if (none && wanted == Device::automatic) return {World::cpu, nothing};
    CHECK(!none, "run.device = cuda: {}; does nvidia-smi show one? To run without: run.device=cpu", nothing);
    FAIL("rank {} sees no GPU, while others do; start ranks only on nodes with GPUs, or use run.device=cpu",
         without - of_all_ranks.begin());
  }
  const auto is_unusable = [](const GpuOffer& offer) { return !offer.unusable.empty(); };
  const auto unusable = std::ranges::find_if(of_all_ranks, is_unusable);
  if (unusable != of_all_ranks.end()) {
    const bool all = std::ranges::all_of(of_all_ranks, is_unusable);
    if (all && wanted == Device::automatic) return {World::cpu, unusable->unusable};
    FAIL("rank {}: {}", unusable - of_all_ranks.begin(), unusable->unusable);
  }
  for (const GpuOffer& offer : of_all_ranks)
    CHECK(backend == Backend::mpi || offer.gpus == 1 || offer.gpus >= offer.ranks_on_node,
          "{} on a node with {}: with NCCL each rank needs its own GPU; start {} a node, use more nodes, "
          "communication.backend=mpi (slow), or run.device=cpu",
          counted(offer.ranks_on_node, "rank"), counted(offer.gpus, "GPU"), counted(offer.gpus, "rank"));
  return {World::cuda};
}

int gpu_of(const GpuOffer& offer) { return offer.rank_on_node % offer.gpus; }

void check_each_has_its_own(const std::vector<std::string>& ids) {
  std::map<std::string, int> ranks;
  for (const std::string& id : ids) ranks[id]++;
  for (const auto& [id, count] : ranks)
    CHECK(count == 1,
          "{} ranks were given one GPU, {} ranks have {}: with NCCL each rank needs its own GPU; start fewer ranks a "
          "node, use more nodes, communication.backend=mpi (slow), or run.device=cpu",
          count, ids.size(), counted(ranks.size(), "GPU"));
}

double peak_flops(const std::string& gpu) {
  std::set<std::string> words;  // "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"
  std::string spaced = gpu;
  std::replace(spaced.begin(), spaced.end(), '-', ' ');
  std::istringstream in(spaced);
  for (std::string word; in >> word;) words.insert(word);
  if (words.contains("MIG")) return 0;  // a slice of a GPU
  struct Row {
    const char *model, *form;
    double flops;
  };  // the first row that matches counts
  constexpr Row rows[] = {{"A100", "", 312e12},    {"H100", "PCIe", 756e12}, {"H100", "NVL", 835e12},
                          {"H100", "", 989.4e12},  {"H200", "NVL", 835e12},  {"H200", "", 989.4e12},
                          {"GH200", "", 989.4e12}, {"B200", "", 2250e12},    {"GB200", "", 2500e12}};
  for (const Row& row : rows)
    if (words.contains(row.model) && (!*row.form || words.contains(row.form))) return row.flops;
  return 0;
}

DeviceChoice choose_device(const Config& config, const Session& session) {
  const Device wanted = config.run.device;
  const Backend backend = config.communication.backend;
  GpuOffer mine{.ranks_on_node = session.ranks_on_this_node(), .rank_on_node = session.rank_on_this_node()};
  together(session, [&] {
    if (wanted == Device::cpu) return;
    if (session.size() > 1) device::expect_waiting_kernels();
    mine.gpus = device::count();
    if (mine.gpus > 0) mine.unusable = device::unusable(gpu_of(mine));
  });
  const std::vector<GpuOffer> offers = of_all_ranks(session, mine);
  DeviceChoice choice;
  std::string id;
  together(session, [&] {
    choice = choose_world(wanted, backend, offers);
    if (choice.world == World::cpu || backend == Backend::mpi) session.require_mpi();
    if (choice.world == World::cpu) return;
    device::select(gpu_of(mine));
    id = device::properties().id;
  });
  if (choice.world == World::cpu) return choice;
  const std::vector<std::string> ids = session.all_gather_text(id);
  if (backend == Backend::nccl) together(session, [&] { check_each_has_its_own(ids); });
  choice.ranks = static_cast<int>(std::count(ids.begin(), ids.end(), id));
  return choice;
}

}  // namespace megalith
