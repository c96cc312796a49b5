// Where ranks compute, decided from what they see, and whether the memory is there: no GPU is needed for that. And what
// a build or a machine without GPUs says.
#include "kernels/stream/device.h"
#include "tests/message_of.h"
#include "trainer/job/device_choice.h"
#include "trainer/job/memory_check.h"

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
  EXPECT_EQ(choose_world(Device::cpu, Backend::nccl, node(2, 8)).world, World::cpu);
  EXPECT_EQ(choose_world(Device::automatic, Backend::nccl, node(2, 0)).world, World::cpu);
}

TEST(Gpu, ABuildWithoutCudaSaysSo) {
  if (device::in_build()) GTEST_SKIP() << "this build has CUDA";
  EXPECT_EQ(device::count(), 0);
  EXPECT_EQ(choose_world(Device::automatic, Backend::nccl, node(2, 8)).world, World::cpu);
  expect_says("this build has no CUDA", [&] { choose_world(Device::cuda, Backend::nccl, node(1, 1)); });
  expect_says("cmake --preset cuda", [&] { const Arena arena(World::cuda, "arena", 1); });
  expect_says("no CUDA", [&] { const Stream s(World::cuda); });
  expect_says("cmake --preset cuda", [&] { const DeviceQueue queue; });
}

TEST(Gpu, EachRankNeedsOneOfItsOwn) {
  if (!device::in_build()) GTEST_SKIP() << "this build has no CUDA";
  for (Device wanted : {Device::automatic, Device::cuda}) {
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(1, 1)).world, World::cuda);
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(8, 8)).world, World::cuda);
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(2, 8)).world, World::cuda);
    EXPECT_EQ(choose_world(wanted, Backend::nccl, node(4, 1)).world, World::cuda)
        << "one given to each by the launcher";
    expect_says("8 ranks on a node with 4 GPUs", [&] { choose_world(wanted, Backend::nccl, node(8, 4)); });
    auto mixed = node(2, 2);
    mixed.push_back({.gpus = 0, .ranks_on_node = 1, .rank_on_node = 0});
    expect_says("rank 2 sees no GPU", [&] { choose_world(wanted, Backend::nccl, mixed); });
  }
  expect_says("this machine has no NVIDIA GPU", [&] { choose_world(Device::cuda, Backend::nccl, node(2, 0)); });
}

TEST(Gpu, OneThatCannotBeUsedIsNamed) {
  if (!device::in_build()) GTEST_SKIP() << "this build has no CUDA";
  const std::string old = "GPU 0 (Tesla V100) has compute capability 7.0; the kernels need 8.0";
  auto offers = node(2, 2);
  offers[1].unusable = old;
  for (Device wanted : {Device::automatic, Device::cuda})
    for (Backend backend : {Backend::nccl, Backend::mpi})
      expect_says("rank 1: " + old, [&] { choose_world(wanted, backend, offers); });
  offers[0].unusable = old;
  expect_says("rank 0: " + old, [&] { choose_world(Device::cuda, Backend::nccl, offers); });
  const DeviceChoice instead = choose_world(Device::automatic, Backend::nccl, offers);
  EXPECT_EQ(instead.world, World::cpu);
  EXPECT_EQ(instead.why_cpu, old);
  EXPECT_NE(choose_world(Device::automatic, Backend::nccl, node(2, 0)).why_cpu.find("no NVIDIA GPU"),
            std::string::npos);
  EXPECT_EQ(choose_world(Device::cpu, Backend::nccl, node(2, 0)).why_cpu, "");
}

TEST(Gpu, ThroughTheHostRanksShareThem) {
  if (!device::in_build()) GTEST_SKIP() << "this build has no CUDA";
  EXPECT_EQ(choose_world(Device::cuda, Backend::mpi, node(8, 4)).world, World::cuda);
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

MemorySizes saved(int64_t on_device, int64_t on_host) {
  MemorySizes sizes;
  sizes.at(MemoryClass::saved, MemoryPlace::device) = on_device;
  sizes.at(MemoryClass::saved, MemoryPlace::host) = on_host;
  return sizes;
}

// In a run on GPUs the node holds the host's part, for all its ranks; in one on the CPU it holds both.
TEST(Gpu, ANodeHasToHoldTheHostsPart) {
  const int64_t GiB = int64_t{1} << 30;
  check_node_memory({{World::cuda, saved(1000 * GiB, 2 * GiB)}}, 4, {8 * GiB});
  expect_says(
      "this run needs 2.00 GiB on each of 4 ranks of this machine (in GiB: saved on the host 2.00), which has 8", [&] {
        check_node_memory({{World::cuda, saved(0, 2 * GiB)}}, 4, {8 * GiB - 1});
      });
  check_node_memory({{World::cpu, saved(3 * GiB, GiB)}}, 2, {8 * GiB});
  expect_says("needs 4.00 GiB on each of 2 ranks of this machine (in GiB: saved 3.00, saved on the host 1.00)", [&] {
    check_node_memory({{World::cpu, saved(3 * GiB, GiB)}}, 2, {8 * GiB - 1});
  });
  expect_says("needs 5.00 GiB on this machine (in GiB: saved 3.00, saved on the host 1.00, process 1.00)", [&] {
    check_node_memory({{World::cpu, saved(3 * GiB, GiB), GiB}}, 1, {5 * GiB - 1});
  });
  const std::vector<MemoryNeed> both = {{World::cpu, saved(3 * GiB, GiB)}, {World::cuda, saved(9 * GiB, GiB)}};
  check_node_memory(both, 1, {5 * GiB});
  expect_says("both layouts together need 5.00 GiB", [&] { check_node_memory(both, 1, {5 * GiB - 1}); });
}

// A GPU is not asked for the host's part, nor the node for the device's.
TEST(Gpu, EachPlaceIsComparedWithItsOwn) {
  if (!device::in_build() || device::count() == 0) GTEST_SKIP() << "no GPU here";
  const int64_t free = device::properties().free, queue = DeviceQueue::bytes, far_too_much = int64_t{1} << 50;
  check_gpu_memory(saved(free - queue, far_too_much), 1);
  check_memory({{World::cuda, saved(free - queue, 1000)}}, 8, 1);
  expect_says("GiB on each GPU", [&] { check_memory({{World::cuda, saved(free - queue + 1, 1000)}}, 8, 1); });
  expect_says("saved on the host", [&] { check_memory({{World::cuda, saved(0, far_too_much)}}, 1, 1); });
  expect_says("ranks of this machine", [&] { check_memory({{World::cpu, saved(far_too_much, 0)}}, 2, 1); });
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
