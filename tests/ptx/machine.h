// A block under way: its warps, its shared memory, and what was done to that.
#pragma once

#include <bit>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/system/check.h"
#include "tests/ptx/code.h"
#include "tests/simt/warp_clocks.h"

namespace megalith::ptx {

constexpr int warp_size = 32, group_warps = 4;
constexpr uint32_t all_lanes = ~0u;

// How a type lies in a register. (These files are compiled with -fno-strict-aliasing.)
template <class T>
using Stored = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;
template <class T>
T from_register(Stored<T> bits) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<T>(bits);
  } else {
    return static_cast<T>(bits);
  }
}
template <class T>
auto to_register(T v) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(v);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(v);
  } else if constexpr (sizeof(T) <= 4) {
    return static_cast<uint32_t>(v);
  } else {
    return static_cast<uint64_t>(v);
  }
}

template <class F>
void each_lane(uint32_t lanes, F&& f) {
  if (lanes == all_lanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < warp_size; lane++) f(lane);
  } else {
    for (; lanes; lanes &= lanes - 1) f(std::countr_zero(lanes));
  }
}

// Two bytes of shared memory: who wrote and who read them last, and when.
struct Cell {
  struct Stamp {
    uint32_t time = 0;    // of the block's clocks; 0: never
    uint32_t warps = 0;   // a bit each
    int16_t thread = -1;  // -1: several
  };
  Stamp write, read;
  uint32_t fences = 0;     // fence.proxy.async so far of who wrote
  bool under_way = false;  // a cp.async not waited for
};
constexpr int cell_bytes = 2;

struct Block;

struct Copy {
  int lane, group, bytes;
  uint64_t to, from;
};

struct Warp {
  Block* block = nullptr;
  int index = 0;
  uint32_t* registers = nullptr;
  std::vector<char> local;  // of each lane

  enum class State { ready, at_barrier, at_named_barrier, at_group, ended } state = State::ready;
  uint32_t alive = 0, waiting = 0;  // lanes; those that wait at a warp-wide instruction
  std::array<int, warp_size> pc{};
  int at = 0;          // of the lanes that go on
  uint32_t carry = 0;  // CC.CF
  std::array<int, warp_size> copy_groups{};
  std::vector<Copy> copies;
  // Kernels with wgmma have here when each register was last touched, and when the last wgmma.fence was.
  std::vector<uint32_t> touched;
  uint32_t now = 0, fenced = 0;

  template <class T>
  Stored<T>* lanes(int slot) {
    return reinterpret_cast<Stored<T>*>(registers + static_cast<ptrdiff_t>(slot) * warp_size);
  }
  // The n-th of an instruction's registers, of one lane.
  template <class T>
  T get(const Instruction& i, int n, int lane) {
    return from_register<T>(lanes<T>(i.slots[n])[lane]);
  }
  template <class T>
  void set(const Instruction& i, int n, int lane, T v) {
    lanes<T>(i.slots[n])[lane] = to_register(v);
  }
  uint32_t predicate(const Instruction& i, int n) const { return registers[i.slots[n] * warp_size]; }
  void set_predicate(const Instruction& i, int n, uint32_t lanes_, uint32_t bits) {
    uint32_t& p = registers[i.slots[n] * warp_size];
    p = (p & ~lanes_) | (bits & lanes_);
  }
  int thread(int lane) const { return index * warp_size + lane; }
  // The number-th address of an instruction, whose register is the n-th.
  uint64_t address(const Instruction& i, int n, int lane, size_t number = 0) {
    return static_cast<uint64_t>(i.numbers[number]) +
           (i.wide[number] ? get<uint64_t>(i, n, lane) : get<uint32_t>(i, n, lane));
  }

  void advance();  // until it waits for others, or has ended
};

// A wgmma of a warpgroup that is not done. Its fragments of the left factor, if any, are read when it is.
struct Product {
  const Instruction* instruction = nullptr;
  void (*finish)(Block&, Warp* four, const Product&) = nullptr;
  std::vector<float> (*take)(Warp* four, const Instruction&) = nullptr;  // the sums, leaving NaN
  int group = 0;
  simt::WarpClocks::Row known{};  // to all its warps, when it was enqueued
  uint64_t left = 0, right = 0;   // descriptors
  bool add = false;
  std::vector<float> sums;  // as they were, thread after thread; empty: as the product before leaves them
};

struct Block {
  const Kernel& kernel;
  const Code& code;
  const simt::Grid& grid;
  const std::vector<char>& parameters;
  dim3 index;
  int64_t shared_end = 0;
  std::vector<char> shared;  // from address 0 on
  std::vector<Cell> cells;
  std::vector<Warp> warps;
  std::unique_ptr<uint32_t, decltype(&std::free)> registers{nullptr, std::free};
  simt::WarpClocks clocks;
  uint32_t barriers = 1;                                            // bar.sync 0 so far
  std::vector<std::vector<uint32_t>> fences;                        // times of fence.proxy.async of each thread
  std::map<std::pair<const Instruction*, int>, uint32_t> acquired;  // by thread: `barriers` when it last looked
  struct Warpgroup {
    int committed = 0;
    std::deque<Product> products;
  };
  std::vector<Warpgroup> warpgroups;

  Block(const Kernel& k, const simt::Grid& g);
  void run(dim3 block_index);

  // Where bytes lie that a thread reads or writes; checked, and noted. Nothing is where no such access is allowed.
  char* access(Warp& w, int lane, Space space, uint64_t address, int bytes, bool write);
  char* shared_access(Warp& w, int lane, uint64_t address, int64_t bytes, bool write);
  void finish_copies(Warp& w, int lane, int but);
  // A warp comes to a named barrier. If it completes the barrier, the waiting warps become ready.
  void come_to_barrier(Warp& w, const Instruction& i, bool waits);
  // Bytes that a product of these warps reads, which knew this when it was enqueued.
  const char* read_by_product(uint64_t address, int64_t bytes, const simt::WarpClocks::Row& known, uint32_t warps);
};

}  // namespace megalith::ptx
