// Loads, stores, cp.async and what orders them (PTX ISA, "Data movement and conversion instructions", "State spaces",
// "Memory consistency model", "Proxies").
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/ptx/machine.h"

namespace megalith::ptx {

namespace {
constexpr uint32_t unwritten = 0;
using simt::WarpClocks;

// Whether what was done then is ordered before what this thread does now.
bool ordered(const Cell::Stamp& s, const Block& b, const Warp& w, int lane) {
  return s.time == unwritten || s.thread == w.thread(lane) || WarpClocks::knows(b.clocks.row(w.index), s.warps, s.time);
}
std::string by(const Cell::Stamp& s) { return s.thread < 0 ? "others" : fmt::format("thread {}", s.thread); }

void check_bounds(const Block& b, uint64_t address, int64_t bytes, const char* does) {
  const bool in_variables = address >= shared_start && address + static_cast<uint64_t>(bytes) <=
                                                           shared_start + static_cast<uint64_t>(b.code.shared_bytes);
  const bool in_dynamic = address >= static_cast<uint64_t>(b.code.shared_begin) &&
                          address + static_cast<uint64_t>(bytes) <= static_cast<uint64_t>(b.shared_end);
  CHECK(in_variables || in_dynamic,
        "{} {} bytes at byte {} of shared memory, of which variables have [{}, {}), and the launch [{}, {})", does,
        bytes, address, shared_start, shared_start + static_cast<uint64_t>(b.code.shared_bytes), b.code.shared_begin,
        b.shared_end);
}
}  // namespace

char* Block::shared_access(Warp& w, int lane, uint64_t address, int64_t bytes, bool write) {
  check_bounds(*this, address, bytes, write ? "writes" : "reads");
  const Cell::Stamp now{.time = clocks.now(), .warps = 1u << w.index, .thread = static_cast<int16_t>(w.thread(lane))};
  for (uint64_t p = address / cell_bytes; p * cell_bytes < address + static_cast<uint64_t>(bytes); p++) {
    Cell& c = cells[p];
    if (!write) {
      CHECK(!c.under_way, "lane {} reads byte {} of shared memory, whose cp.async nobody waited for", lane,
            p * cell_bytes);
      CHECK(c.write.time != unwritten,
            "lane {} reads byte {} of shared memory, which no thread of the block has written", lane, p * cell_bytes);
    }
    CHECK(ordered(c.write, *this, w, lane),
          "race: lane {} {} byte {} of shared memory, which {} wrote with no barrier between", lane,
          write ? "writes" : "reads", p * cell_bytes, by(c.write));
    if (write) {
      CHECK(ordered(c.read, *this, w, lane),
            "race: lane {} writes byte {} of shared memory, which {} read with no barrier between", lane,
            p * cell_bytes, by(c.read));
      c.write = now;
      c.fences = static_cast<uint32_t>(fences[static_cast<size_t>(w.thread(lane))].size());
      c.under_way = false;
    } else {
      const Cell::Stamp before = c.read;
      c.read = now;
      if (!ordered(before, *this, w, lane)) c.read.thread = -1, c.read.warps |= before.warps;
    }
  }
  return shared.data() + address;
}

const char* Block::read_by_product(uint64_t address, int64_t bytes, const WarpClocks::Row& known, uint32_t warps_) {
  check_bounds(*this, address, bytes, "a product reads");
  for (uint64_t p = address / cell_bytes; p * cell_bytes < address + static_cast<uint64_t>(bytes); p++) {
    Cell& c = cells[p];
    CHECK(c.write.time != unwritten && !c.under_way,
          "a product reads byte {} of shared memory, which nobody has written, or whose cp.async nobody waited for",
          p * cell_bytes);
    CHECK(WarpClocks::knows(known, c.write.warps, c.write.time),
          "a product reads byte {} of shared memory, which thread {} wrote with no barrier between", p * cell_bytes,
          c.write.thread);
    // The fence counts where it stands in front of a barrier that comes before the product.
    const std::vector<uint32_t>& times = fences[static_cast<size_t>(c.write.thread)];
    CHECK(c.fences < times.size() && WarpClocks::knows(known, c.write.warps, times[c.fences]),
          "a product reads byte {} of shared memory, with no fence.proxy.async of thread {} between its write and the "
          "barrier",
          p * cell_bytes, c.write.thread);
    c.read = {.time = clocks.now(), .warps = warps_};
  }
  return shared.data() + address;
}

char* Block::access(Warp& w, int lane, Space space, uint64_t address, int bytes, bool write) {
  CHECK(address % static_cast<uint64_t>(bytes) == 0, "lane {}: {} bytes at address {:#x} are misaligned", lane, bytes,
        address);
  if (space == Space::generic) {
    space = address & shared_window ? Space::shared : address & local_window ? Space::local : Space::global;
    address &= ~(shared_window | local_window);
  }
  if (space == Space::shared) return shared_access(w, lane, address, bytes, write);
  const auto end = address + static_cast<uint64_t>(bytes);
  if (space == Space::param && !write && end <= parameters.size())
    return const_cast<char*>(parameters.data()) + address;
  if (space == Space::param || space == Space::local) {
    CHECK(address >= local_start && end <= local_start + static_cast<uint64_t>(code.local_bytes),
          "lane {}: {} bytes at {:#x}, outside local memory and parameters", lane, bytes, address);
    return w.local.data() + lane * code.local_bytes + (address - local_start);
  }
  if (!write && kernel.module->holds(address, bytes)) return reinterpret_cast<char*>(address);
  CHECK(simt::is_device_memory(reinterpret_cast<void*>(address)),
        "lane {}: {} bytes at {:#x}, which is no device memory", lane, bytes, address);
  if (write) {
    simt::writes_by_library(reinterpret_cast<void*>(address), bytes);
  } else {
    simt::reads_by_library(reinterpret_cast<void*>(address), bytes);
  }
  return reinterpret_cast<char*>(address);
}

namespace {
// A register wider than the type takes it zero- or sign-extended; a narrower type takes the register's low bits.
template <class T, int n, class Register>
void load(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    T v[n];
    std::memcpy(v, w.block->access(w, lane, i.operation->space, w.address(i, n, lane), sizeof(v), false), sizeof(v));
    for (int e = 0; e < n; e++) w.set<Register>(i, e, lane, static_cast<Register>(v[e]));
  });
}
template <class T, int n, class Register>
void store(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    T v[n];
    for (int e = 0; e < n; e++) v[e] = static_cast<T>(w.get<Register>(i, 1 + e, lane));
    std::memcpy(w.block->access(w, lane, i.operation->space, w.address(i, 0, lane), sizeof(v), true), v, sizeof(v));
  });
}
// Blocks run one after another: what is not there at a thread's first look will not be at its next.
void load_acquire(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    uint32_t& last = w.block->acquired[{&i, w.thread(lane)}];
    CHECK(std::exchange(last, w.block->barriers) != w.block->barriers,
          "lane {} looks again for what no block before it has released", lane);
  });
  load<int32_t, 1, int32_t>(w, i, lanes);
}
void add_atomically(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    int32_t before;
    const uint64_t at = w.address(i, 1, lane);
    std::memcpy(&before, w.block->access(w, lane, Space::global, at, sizeof(before), false), sizeof(before));
    const auto after = static_cast<int32_t>(before + i.numbers[1]);
    std::memcpy(w.block->access(w, lane, Space::global, at, sizeof(after), true), &after, sizeof(after));
    w.set<int32_t>(i, 0, lane, before);
  });
}
void add_four_floats(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    float sums[4];
    const uint64_t at = w.address(i, 0, lane);
    std::memcpy(sums, w.block->access(w, lane, Space::global, at, sizeof(sums), false), sizeof(sums));
    for (int e = 0; e < 4; e++) sums[e] += w.get<float>(i, 1 + e, lane);
    std::memcpy(w.block->access(w, lane, Space::global, at, sizeof(sums), true), sums, sizeof(sums));
  });
}
template <class T, int n>
void add_accesses(Operations& all, const std::vector<const char*>& types) {
  if constexpr (n * sizeof(T) <= 16) {
    const std::string vector = n > 1 ? fmt::format(".v{}", n) : "", count = n > 1 ? std::to_string(n) : "";
    const std::pair<const char*, Space> spaces[] = {{"", Space::generic},
                                                    {".global", Space::global},
                                                    {".shared", Space::shared},
                                                    {".local", Space::local},
                                                    {".param", Space::param}};
    for (const auto& [space, in] : spaces)
      for (const std::string hint : {"", ".cs", ".ca", ".cg", ".nc"})  // of caches, which are not there
        for (const char* type : types) {
          const std::string rest = fmt::format("{}{}{}.{}", space, hint, vector, type);
          if (!hint.empty() && in != Space::global) continue;
          using Long = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
          const auto add = [&](const std::string& registers, Execute loads, Execute stores) {
            all.emplace("ld" + rest, Operation{registers + "=a", loads, Kind::plain, in});
            if (hint != ".nc") all.emplace("st" + rest, Operation{"a" + registers, stores, Kind::plain, in});
          };
          if (sizeof(T) < 8) add(count + "w", load<T, n, T>, store<T, n, T>);
          add(count + "l", load<T, n, Long>, store<T, n, Long>);
        }
  }
}
template <class T>
void add_accesses(Operations& all, const std::vector<const char*>& types) {
  add_accesses<T, 1>(all, types);
  add_accesses<T, 2>(all, types);
  add_accesses<T, 4>(all, types);
}

// cp.async.cg.shared.global [to], [from], 16, n: what is beyond n bytes becomes zeros.
void copy_async(Warp& w, const Instruction& i, uint32_t lanes) {
  constexpr int bytes = 16;
  CHECK(i.numbers[2] == bytes, "a cp.async.cg of {} bytes", i.numbers[2]);
  each_lane(lanes, [&](int lane) {
    const int n = i.num_slots > 2 ? w.get<int32_t>(i, 2, lane) : bytes;
    CHECK(n >= 0 && n <= bytes, "lane {}: a cp.async of {} of 16 bytes", lane, n);
    const uint64_t to = w.address(i, 0, lane, 0), from = w.address(i, 1, lane, 1);
    CHECK(n == 0 || from % bytes == 0, "lane {}: a cp.async from {:#x}, which is misaligned", lane, from);
    if (n) w.block->access(w, lane, Space::global, from, n, false);
    char* place = w.block->access(w, lane, Space::shared, to, bytes, true);
    std::memset(place, 0xff, bytes);
    for (uint64_t p = to; p < to + bytes; p += cell_bytes) w.block->cells[p / cell_bytes].under_way = true;
    w.copies.push_back({lane, w.copy_groups[static_cast<size_t>(lane)], n, to, from});
  });
}
void copy_commit(Warp& w, const Instruction&, uint32_t lanes) {
  each_lane(lanes, [&](int lane) { w.copy_groups[static_cast<size_t>(lane)]++; });
}
void copy_wait(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) { w.block->finish_copies(w, lane, static_cast<int>(i.numbers[0])); });
}

void sync_warp(Warp& w, const Instruction&, uint32_t) { w.block->clocks.sync_warp(w.index); }
template <bool waits>
void come_to_barrier(Warp& w, const Instruction& i, uint32_t) {
  w.block->come_to_barrier(w, i, waits);
}
void fence_proxy(Warp& w, const Instruction&, uint32_t lanes) {
  Block& b = *w.block;
  each_lane(lanes, [&](int lane) { b.fences[static_cast<size_t>(w.thread(lane))].push_back(b.clocks.now()); });
}
template <uint64_t window, int sign>
void to_generic(Warp& w, const Instruction& i, uint32_t lanes) {
  each_lane(lanes, [&](int lane) {
    const auto a = w.get<uint64_t>(i, 1, lane);
    CHECK(sign > 0 || !window || a & window, "lane {}: {:#x} is no address of this state space", lane, a);
    w.set<uint64_t>(i, 0, lane, sign > 0 ? a + window : a - window);
  });
}
}  // namespace

void Block::finish_copies(Warp& w, int lane, int but) {
  const int groups = w.copy_groups[static_cast<size_t>(lane)];
  const auto done = [&](const Copy& c) { return c.lane == lane && c.group < groups - but; };
  for (const Copy& c : w.copies) {
    if (!done(c)) continue;
    char* to = shared_access(w, lane, c.to, 16, true);
    std::memset(to, 0, 16);
    if (c.bytes) std::memcpy(to, access(w, lane, Space::global, c.from, c.bytes, false), static_cast<size_t>(c.bytes));
  }
  std::erase_if(w.copies, done);
}

void add_memory(Operations& all) {
  add_accesses<uint8_t>(all, {"u8", "b8"});
  add_accesses<int8_t>(all, {"s8"});
  add_accesses<uint16_t>(all, {"u16", "b16"});
  add_accesses<int16_t>(all, {"s16"});
  add_accesses<uint32_t>(all, {"u32", "b32", "f32"});
  add_accesses<int32_t>(all, {"s32"});
  add_accesses<uint64_t>(all, {"u64", "s64", "b64", "f64"});
  all.emplace("ld.acquire.gpu.global.s32", Operation{"w=a", load_acquire, Kind::plain, Space::global});
  all.emplace("st.release.gpu.global.s32", Operation{"aw", store<int32_t, 1, int32_t>, Kind::plain, Space::global});
  all.emplace("atom.relaxed.gpu.global.add.s32", Operation{"w=an", add_atomically, Kind::plain, Space::global});
  all.emplace("red.relaxed.gpu.global.add.v4.f32", Operation{"a4w", add_four_floats, Kind::plain, Space::global});
  all.emplace("cp.async.cg.shared.global", Operation{"aanw", copy_async});
  all.emplace("cp.async.cg.shared.global", Operation{"aan", copy_async});
  all.emplace("cp.async.commit_group", Operation{"", copy_commit});
  all.emplace("cp.async.wait_group", Operation{"n", copy_wait});
  all.emplace("bar.warp.sync", Operation{"w", sync_warp, Kind::masked});
  all.emplace("bar.sync", Operation{"n", nullptr, Kind::barrier});
  all.emplace("bar.sync", Operation{"ww", come_to_barrier<true>, Kind::named});
  all.emplace("bar.arrive", Operation{"ww", come_to_barrier<false>, Kind::named});
  all.emplace("fence.proxy.async.shared::cta", Operation{"", fence_proxy});
  all.emplace("cvta.to.global.u64", Operation{"l=l", to_generic<0, -1>});
  all.emplace("cvta.global.u64", Operation{"l=l", to_generic<0, 1>});
  all.emplace("cvta.to.shared.u64", Operation{"l=l", to_generic<shared_window, -1>});
  all.emplace("cvta.shared.u64", Operation{"l=l", to_generic<shared_window, 1>});
  all.emplace("cvta.local.u64", Operation{"l=l", to_generic<local_window, 1>});
  all.emplace("cvta.to.local.u64", Operation{"l=l", to_generic<local_window, -1>});
}

}  // namespace megalith::ptx
