// `megalith info` says of machines that it has not seen each thing that would stop a run, with its remedy.
#include "trainer/planner/inventory.h"

#include <gtest/gtest.h>

#include "kernels/system/units.h"

namespace megalith {
namespace {

Inventory good_machine() {
  Inventory m;
  m.memory = 1000 * GiB;
  m.shared_files = 500 * GiB;
  m.open_files = 65536;
  m.ports = {{"mlx5_0", "400 Gb/sec (4X NDR)", "ACTIVE"}};
  m.has_cuda = true;
  m.architectures = "80-real, 90a-real, 100";
  for (int i = 0; i < 2; i++) {
    Gpu gpu;
    gpu.properties.index = i;
    gpu.properties.name = "H100";
    gpu.properties.major = 9;
    gpu.properties.memory = 80 * GiB;
    gpu.properties.free = 79 * GiB;
    m.gpus.push_back(gpu);
  }
  m.links = {{device::Link::none, device::Link::nvlink}, {device::Link::nvlink, device::Link::none}};
  m.libraries = {{"NCCL", "2.28.9"}};
  return m;
}

TEST(Inventory, AGoodMachineHasNoProblems) {
  const Inventory m = good_machine();
  EXPECT_TRUE(problems(m).empty()) << problems(m).front();
  const std::string text = describe(m);
  for (const char* words :
       {"with CUDA, code for 80-real, 90a-real, 100", "1: H100, compute capability 9.0, 79.0 GiB of 80.0 GiB free",
        "GPU 0:      - NVLink", "mlx5_0: 400 Gb/sec (4X NDR), ACTIVE", "pinned memory unlimited", "2.28.9",
        "no problems found"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST(Inventory, EachProblemIsNamedAlone) {
  const struct {
    const char* words;
    void (*spoil)(Inventory&);
  } cases[] = {
      {"driver of this machine is too old",
       [](Inventory& m) {
         m.cuda_error = "the NVIDIA driver of this machine is too old";
         m.gpus.clear();
       }},
      {"finds no GPU", [](Inventory& m) { m.gpus.clear(); }},
      {"needs 8.0", [](Inventory& m) { m.gpus[1].unusable = "GPU 1 has 7.0; it needs 8.0"; }},
      {"GPU 1: another process uses 20.0 GiB of 80.0 GiB", [](Inventory& m) { m.gpus[1].properties.free = 60 * GiB; }},
      {"cannot open libnccl", [](Inventory& m) { m.nccl_error = "cannot open libnccl.so.2"; }},
      {"/dev/shm has 64 MiB free", [](Inventory& m) { m.shared_files = GiB / 16; }},
      {"/dev/shm has 32 MiB free, but MPI",
       [](Inventory& m) {
         m.gpus.pop_back();
         m.links.clear();
         m.shared_files = GiB / 32;
       }},
      {"ulimit -l unlimited", [](Inventory& m) { m.locked_limit = 65536; }},
      {"mlx5_0 is DOWN", [](Inventory& m) { m.ports[0].state = "DOWN"; }},
      {"ulimit -n", [](Inventory& m) { m.open_files = 256; }},
  };
  for (const auto& [words, spoil] : cases) {
    Inventory m = good_machine();
    spoil(m);
    const std::vector<std::string> found = problems(m);
    ASSERT_EQ(found.size(), 1u) << words;
    EXPECT_NE(found[0].find(words), std::string::npos) << found[0];
    EXPECT_NE(describe(m).find("- " + found[0] + "\n"), std::string::npos);
  }
}

// A limit that does not concern a machine is no problem: the limit on pinned memory without network adapters, NCCL and
// much shared memory with one GPU.
TEST(Inventory, WhatIsNotNeededIsNotMissed) {
  Inventory m = good_machine();
  m.ports.clear();
  m.locked_limit = 65536;
  m.gpus.pop_back();
  m.links = {{device::Link::none}};
  m.nccl_error = "cannot open libnccl.so.2";
  m.shared_files = GiB / 8;
  EXPECT_TRUE(problems(m).empty()) << problems(m).front();
  m.has_cuda = false;
  m.gpus.clear();
  EXPECT_TRUE(problems(m).empty()) << problems(m).front();
}

TEST(Inventory, ThisMachineIsLookedAt) {
  const Inventory m = collect_inventory();
  EXPECT_FALSE(m.host.empty());
  EXPECT_FALSE(m.processor.empty());
  EXPECT_GT(m.cores, 0);
  EXPECT_GT(m.memory, GiB / 2);
  EXPECT_EQ(m.has_cuda, device::in_build());
  ASSERT_GE(m.libraries.size(), 3u);
  for (const auto& [name, version] : m.libraries)
    EXPECT_NE(version.find_first_of("0123456789"), std::string::npos) << name << ": " << version;
}

}  // namespace
}  // namespace megalith
