// Where ranks compute, decided from what they see: no GPU is needed for that. And what a build or a machine without
// GPUs says.
#include "trainer/job/gpu.h"

#include "kernels/base/device.h"
#include "tests/pure/testing.h"

namespace megalith {
namespace {

void expect_says(const std::string& words, const std::function<void()>& call) {
  const std::string message = message_of(call);
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

std::vector<GpuOffer> node(int ranks, int gpus) {
  std::vector<GpuOffer> offers;
  for (int r = 0; r < ranks; r++) offers.push_back({.gpus = gpus, .ranks_on_node = ranks, .rank_on_node = r});
  return offers;
}

TEST(Gpu, TheCpuIsTakenWhereAskedForAndWhereThereIsNothingElse) {
  EXPECT_EQ(choose_world(Device::cpu, Backend::nccl, node(2, 8)), World::cpu);
  EXPECT_EQ(choose_world(Device::automatic, Backend::nccl, node(2, 0)), World::cpu);
}

TEST(Gpu, ABuildWithoutCudaSaysSo) {
  if (device::in_build()) GTEST_SKIP() << "this build has CUDA";
  EXPECT_EQ(device::count(), 0);
  EXPECT_EQ(choose_world(Device::automatic, Backend::nccl, node(2, 8)), World::cpu);
  expect_says("this build has no CUDA", [&] { choose_world(Device::cuda, Backend::nccl, node(1, 1)); });
  expect_says("cmake --preset cuda", [&] { const Arena arena(World::cuda, "arena", 1); });
  expect_says("no CUDA", [&] { const Stream s(World::cuda); });
  expect_says("cmake --preset cuda", [&] { const DeviceQueue queue; });
}

TEST(Gpu, EachRankNeedsOneOfItsOwn) {
  if (!device::in_build()) GTEST_SKIP() << "this build has no CUDA";
  for (Device wanted : {Device::automatic, Device::cuda}) {
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(1, 1)), World::cuda);
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(8, 8)), World::cuda);
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(2, 8)), World::cuda);
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(4, 1)), World::cuda) << "one given to each by the launcher";
    expect_says("8 ranks on a node with 4 GPUs", [&] { choose_world(wanted, Backend::nccl, node(8, 4)); });
    auto mixed = node(2, 2);
    mixed.push_back({.gpus = 0, .ranks_on_node = 1, .rank_on_node = 0});
    expect_says("rank 2 sees no GPU", [&] { choose_world(wanted, Backend::nccl, mixed); });
  }
  expect_says("this machine has no NVIDIA GPU", [&] { choose_world(Device::cuda, Backend::nccl, node(2, 0)); });
}

TEST(Gpu, ThroughTheHostRanksShareThem) {
  if (!device::in_build()) GTEST_SKIP() << "this build has no CUDA";
  EXPECT_EQ(choose_world(Device::cuda, Backend::mpi, node(8, 4)), World::cuda);
  expect_says("this machine has no NVIDIA GPU", [&] { choose_world(Device::cuda, Backend::mpi, node(2, 0)); });
}

TEST(Gpu, RanksTakeThemInOrder) {
  for (const GpuOffer& offer : node(4, 4)) EXPECT_EQ(gpu_of(offer), offer.rank_on_node);
  for (const GpuOffer& offer : node(4, 1)) EXPECT_EQ(gpu_of(offer), 0);
  for (const GpuOffer& offer : node(5, 2)) EXPECT_EQ(gpu_of(offer), offer.rank_on_node % 2);
  check_each_has_its_own({"a", "b", "c"});
  expect_says("2 ranks were given one GPU, 3 ranks have 2 GPUs", [&] { check_each_has_its_own({"a", "b", "a"}); });
}

TEST(Gpu, APlanHasToFit) {
  if (!device::in_build() || device::count() == 0) GTEST_SKIP() << "no GPU here";
  const int64_t free = device::properties().free, queue = DeviceQueue::bytes;
  check_gpu_memory({free - queue}, 1);
  expect_says("this run needs", [&] { check_gpu_memory({free - queue + 1}, 1); });
  // What a queue takes is told of in the same numbers, before it is made and after.
  check_gpu_memory({free}, 1, true);
  expect_says("this run needs", [&] { check_gpu_memory({free + 1}, 1, true); });
  check_gpu_memory({free / 2}, 2, true);
  expect_says("for each of the 2 ranks on it", [&] { check_gpu_memory({free / 2 + 1}, 2, true); });
}

// As the driver spells them.
TEST(Gpu, PeaksAreThoseOfTheDataSheets) {
  const std::pair<const char*, double> peaks[] = {{"NVIDIA A100-SXM4-40GB", 312e12},
                                                  {"NVIDIA A100-SXM4-80GB", 312e12},
                                                  {"NVIDIA A100-PCIE-40GB", 312e12},
                                                  {"NVIDIA A100 80GB PCIe", 312e12},
                                                  {"NVIDIA H100 80GB HBM3", 989.4e12},
                                                  {"NVIDIA H100 PCIe", 756e12},
                                                  {"NVIDIA H100 NVL", 835e12},
                                                  {"NVIDIA H200", 989.4e12},
                                                  {"NVIDIA H200 NVL", 835e12},
                                                  {"NVIDIA GH200 480GB", 989.4e12},
                                                  {"NVIDIA GH200 144G HBM3e", 989.4e12},
                                                  {"NVIDIA B200", 2250e12},
                                                  {"NVIDIA GB200", 2500e12}};
  for (const auto& [name, flops] : peaks) EXPECT_EQ(peak_flops(name), flops) << name;
  for (const char* name :
       {"", "NVIDIA RTX A1000", "NVIDIA RTX A1000 Laptop GPU", "NVIDIA A10", "NVIDIA A100X", "NVIDIA H20",
        "NVIDIA H800", "NVIDIA GB300", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Tesla V100-SXM2-16GB"})
    EXPECT_EQ(peak_flops(name), 0) << name;
}

TEST(Gpu, AMachineWithoutOneSaysSo) {
  if (!device::in_build()) GTEST_SKIP() << "this build has no CUDA";
  if (device::count() > 0) GTEST_SKIP() << "this machine has a GPU";
  expect_says("cudaMalloc of 1 bytes for arena", [&] { const Arena arena(World::cuda, "arena", 1); });
  expect_says("cudaSetDevice(index) failed", [&] { device::select(0); });
}

}  // namespace
}  // namespace megalith
