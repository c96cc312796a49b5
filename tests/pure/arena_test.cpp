// Arenas: what is handed out does not overlap, scopes give it back, peaks are kept, and too much is refused.
#include "kernels/stream/arena.h"

#include <cstring>

#include "tests/message_of.h"
#include "trainer/parallel/runtime.h"

namespace megalith {
namespace {

TEST(Arena, TensorsAreAlignedAndApart) {
  Arena arena(World::cpu, "test", 4096);
  const Tensor a = arena.tensor(DType::bf16, {3, 5}), b = arena.tensor(DType::f64, {1}),
               c = arena.tensor(DType::f32, {70});
  for (const Tensor& t : {a, b, c}) EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % Arena::alignment, 0u);
  std::memset(a.raw(), 1, static_cast<size_t>(a.bytes()));
  std::memset(b.raw(), 2, static_cast<size_t>(b.bytes()));
  std::memset(c.raw(), 3, static_cast<size_t>(c.bytes()));
  EXPECT_EQ(static_cast<char*>(a.raw())[29], 1);
  EXPECT_EQ(static_cast<char*>(b.raw())[7], 2);
  EXPECT_EQ(arena.used(), 256 + 256 + 512);
}

TEST(Arena, ScopesGiveBackAndThePeakStays) {
  for (World world : {World::cpu, World::dry}) {
    Arena arena(world, "test", 2048);
    arena.tensor(DType::f32, {64});
    void* first = nullptr;
    {
      const auto outer = arena.scope();
      first = arena.tensor(DType::f32, {64}).raw();
      {
        const auto inner = arena.scope();
        arena.tensor(DType::f32, {128});
        EXPECT_EQ(arena.used(), 1024);
      }
      EXPECT_EQ(arena.used(), 512);
    }
    EXPECT_EQ(arena.used(), 256);
    EXPECT_EQ(arena.peak(), 1024);
    EXPECT_EQ(arena.tensor(DType::f32, {64}).raw(), first) << "the same memory again";
  }
}

TEST(Arena, RefusesWhatDoesNotFit) {
  Arena arena(World::cpu, "scratch", 1024);
  arena.tensor(DType::f32, {128});
  EXPECT_NO_THROW(arena.tensor(DType::f32, {128})) << "exactly full";
  EXPECT_EQ(message_of([&] { arena.tensor(DType::f32, {1}); }),
            "arena scratch: 256 bytes wanted, 1024 of 1024 used; the dry run planned less");
  EXPECT_EQ(arena.used(), 1024) << "a refusal takes nothing";
}

TEST(Arena, BothPlacesOfTheCpuAreMemoryAndDryOnesLieApart) {
  Arena device(World::cpu, "device", 4096), host(World::cpu, "host", 4096, MemoryPlace::host);
  const Tensor a = device.tensor(DType::f32, {1024}), b = host.tensor(DType::f32, {1024});
  std::memset(a.raw(), 1, 4096);
  std::memset(b.raw(), 2, 4096);
  EXPECT_EQ(static_cast<char*>(a.raw())[4095], 1);

  Arena dry_device(World::dry, "device", 0), dry_host(World::dry, "host", 0, MemoryPlace::host);
  for (int i = 0; i < 3; i++) {
    EXPECT_FALSE(in_dry_host_arena(dry_device.tensor(DType::f32, {int64_t{1} << 50})));
    EXPECT_TRUE(in_dry_host_arena(dry_host.tensor(DType::f32, {int64_t{1} << 50})));
  }
}

TEST(Arena, EveryClassHasAnArenaInEachPlace) {
  MemorySizes sizes;
  sizes.at(MemoryClass::saved, MemoryPlace::device) = 512;
  sizes.at(MemoryClass::saved, MemoryPlace::host) = 1024;
  Memory memory(World::cpu, sizes);
  memory[MemoryClass::saved].tensor(DType::f32, {128});
  memory.at(MemoryClass::saved, MemoryPlace::host).tensor(DType::f32, {256});
  EXPECT_EQ(memory.peaks(), sizes);
  EXPECT_EQ(memory.peaks().total(MemoryPlace::device), 512);
  EXPECT_EQ(memory.peaks().total(MemoryPlace::host), 1024);
  for (MemoryPlace place : all_memory_places)
    EXPECT_NE(message_of([&] {
                memory.at(MemoryClass::saved, place).tensor(DType::f32, {1});
              }).find(place == MemoryPlace::host ? "arena saved on the host: " : "arena saved: "),
              std::string::npos);
}

TEST(Arena, TheDryOneHasNoLimitAndNoNullTensor) {
  Arena arena(World::dry, "test", 16);
  const Tensor t = arena.tensor(DType::f32, {int64_t{1} << 40});
  EXPECT_NE(t.raw(), nullptr);
  EXPECT_EQ(arena.peak(), int64_t{1} << 42);
}

}  // namespace
}  // namespace megalith
