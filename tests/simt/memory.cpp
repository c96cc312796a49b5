// Checks every access of kernels to shared and device memory against the earlier ones (simt.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "tests/simt/watched_memory.h"

namespace megalith::simt {

namespace {
Memory& memory() { return watched; }

Stamp stamp_of(const Actor& a) {
  return {.block = a.block, .time = clocks.now(), .warps = 1u << a.warp, .thread = a.thread};
}

const char* verb(bool write) { return write ? "writes" : "reads"; }

const Allocation& allocation(uintptr_t p, int64_t bytes, bool write) {
  Memory& m = memory();
  const auto holds = [&](const Allocation& a) { return p >= a.begin && p + static_cast<uintptr_t>(bytes) <= a.end; };
  if (m.last < m.allocations.size() && holds(m.allocations[m.last])) return m.allocations[m.last];
  const Allocation* near = nullptr;
  for (const Allocation& a : m.allocations) {
    if (holds(a)) {
      m.last = static_cast<size_t>(&a - m.allocations.data());
      return a;
    }
    const auto distance = [&](const Allocation& b) { return p < b.begin ? b.begin - p : p - std::min(p, b.end); };
    if (!near || distance(a) < distance(*near)) near = &a;
  }
  if (!near) fault(fmt::format("{} {} bytes of device memory that nobody has allocated", verb(write), bytes));
  fault(fmt::format("{} {} bytes at byte {} of {}, which has {}", verb(write), bytes,
                    static_cast<int64_t>(p) - static_cast<int64_t>(near->begin), near->name, near->end - near->begin));
}

[[noreturn]] void outside_shared(uintptr_t p, int64_t bytes, bool write) {
  fault(fmt::format("{} {} bytes at byte {} of shared memory, the launch asked for {}", verb(write), bytes,
                    static_cast<int64_t>(p) - static_cast<int64_t>(memory().shared), memory().shared_bytes));
}
[[noreturn]] void writes_read_only(const Allocation& a) {
  fault(fmt::format("writes to {}, which is read-only", a.name));
}

// Dynamic memory begins on a multiple of 1024 (device_cuda.h), after the static.
[[noreturn]] void too_much_shared(const Symbol& variable) {
  const Memory& m = memory();
  fault(fmt::format(
      "its __shared__ variables have {} bytes with {}, beside {} that the launch asked for; it is allowed {} "
      "in all",
      m.static_bytes, variable.name, m.shared_bytes, m.most_shared_bytes));
}
// A variable of the program that a kernel touches is a __shared__ one.
void touch_variable(uintptr_t p) {
  Memory& m = memory();
  for (const Symbol& s : m.variables)
    if (p - s.begin < static_cast<uintptr_t>(s.size)) return;
  const Symbol s = symbol_of(reinterpret_cast<const void*>(p));
  if (s.name.empty()) return;
  m.variables.push_back(s);
  m.static_bytes += s.size;
  const int64_t before_dynamic = m.shared_bytes > 0 ? (m.static_bytes + 1023) / 1024 * 1024 : m.static_bytes;
  if (before_dynamic + m.shared_bytes > m.most_shared_bytes) too_much_shared(s);
}

enum class Space { device, shared, local };
struct Place {
  Cell* cells = nullptr;  // none of what is a thread's own
  Space space = Space::local;
};

inline Place find(uintptr_t p, int64_t bytes, bool write) {
  Memory& m = memory();
  if (m.device.holds(p)) {
    const Allocation& a = allocation(p, bytes, write);
    if (write && a.read_only) writes_read_only(a);
    return {m.device.cell(p), Space::device};
  }
  if (m.dynamic.holds(p)) {
    if (p < m.shared || p + static_cast<uintptr_t>(bytes) > m.shared + static_cast<uintptr_t>(m.shared_bytes))
      outside_shared(p, bytes, write);
    return {m.dynamic.cell(p), Space::shared};
  }
  if (m.fixed.holds(p)) {
    touch_variable(p);
    return {m.fixed.cell(p), Space::shared};
  }
  return {};
}

std::string name_of(uintptr_t p) {
  const Memory& m = memory();
  if (m.device.holds(p)) {
    const Allocation& a = allocation(p, 1, false);
    return fmt::format("byte {} of {}", p - a.begin, a.name);
  }
  return m.dynamic.holds(p) ? fmt::format("byte {} of shared memory", p - m.shared) : "a __shared__ variable";
}

// Whether what is stamped happened to this memory: what another block did to shared memory was done to its own.
template <Space space>
bool lives(const Stamp& s, const Actor& a) {
  return space == Space::shared ? s.block == a.block : s.block != 0;
}

// Whether what is stamped, and lives, is ordered before what `a` does now.
template <Space space>
bool ordered(const Stamp& s, const Actor& a) {
  if (space == Space::device && s.block != a.block)
    // An earlier launch, or a block of this one that has released.
    return s.block < a.first || memory().order.is_known(s.block, s.time, a);
  return s.thread == a.thread || WarpClocks::knows(*a.knows, s.warps, s.time);
}

[[noreturn]] void race(uintptr_t p, bool write, bool was_write, const Stamp& other, const Actor& a) {
  const std::string who = other.block != a.block ? fmt::format("block {} of this launch", other.block - a.first)
                          : other.thread == many ? "other threads"
                                                 : fmt::format("thread {} of the block", other.thread);
  fault(fmt::format("race: {} {}, which {} {} with no barrier between", verb(write), name_of(p), who,
                    was_write ? "wrote" : "read"));
}
[[noreturn]] void unwritten(uintptr_t p, bool shared) {
  fault(fmt::format("reads {}, which no thread{} has written (or whose asynchronous copy nobody waited for)",
                    name_of(p), shared ? " of the block" : ""));
}

template <Space space>
void read_cell(Cell& c, uintptr_t p, const Actor& a) {
  if (!lives<space>(c.write, a)) unwritten(p, space == Space::shared);
  if (!ordered<space>(c.write, a)) race(p, false, true, c.write, a);
  const bool join = lives<space>(c.read, a) && !ordered<space>(c.read, a);
  Stamp now = stamp_of(a);
  if (join) now.warps |= c.read.warps, now.thread = many;
  c.read = now;
}

template <Space space>
void write_cell(Cell& c, uintptr_t p, const Actor& a) {
  if (lives<space>(c.write, a) && !ordered<space>(c.write, a)) race(p, true, true, c.write, a);
  if (lives<space>(c.read, a) && !ordered<space>(c.read, a)) race(p, true, false, c.read, a);
  c.write = stamp_of(a);
  c.write_published = static_cast<uint32_t>(memory().published[a.thread].size());
}

template <Space space, bool write>
void access_cells(Cell* cells, uintptr_t p, int64_t bytes, const Actor& a) {
  const int64_t n = (static_cast<int64_t>(p % unit) + bytes + unit - 1) / unit;
  for (int64_t i = 0; i < n; i++) {
    if constexpr (write) {
      write_cell<space>(cells[i], p + static_cast<uintptr_t>(i * unit), a);
    } else {
      read_cell<space>(cells[i], p + static_cast<uintptr_t>(i * unit), a);
    }
  }
}

template <bool write>
inline void access(const void* pointer, int64_t bytes, const Actor& a) {
  if (!in_kernel()) return;
  const auto p = reinterpret_cast<uintptr_t>(pointer);
  const Place place = find(p, bytes, write);
  if (place.space == Space::local) return;
  memory().accesses++;
  if (place.space == Space::device) {
    access_cells<Space::device, write>(place.cells, p, bytes, a);
  } else {
    access_cells<Space::shared, write>(place.cells, p, bytes, a);
  }
}
}  // namespace

void begin_launch(int64_t shared_bytes, int64_t most_shared_bytes) {
  Memory& m = memory();
  m.shared_bytes = shared_bytes;
  m.most_shared_bytes = most_shared_bytes;
  m.static_bytes = 0;
  m.variables.clear();
}
char* shared_begin() { return reinterpret_cast<char*>(memory().shared); }
int64_t accesses() { return memory().accesses; }

void reads(const void* p, int64_t bytes) { access<false>(p, bytes, running.actor); }
void reads(const void* p, int64_t bytes, int lane) {
  Actor a = running.actor;
  a.thread = static_cast<uint16_t>(a.warp * 32 + lane);
  access<false>(p, bytes, a);
}
void writes(void* p, int64_t bytes) { access<true>(p, bytes, running.actor); }

namespace {
// The cells of a flag or a counter of tickets.
std::span<Cell> cells_of(const int32_t* number, bool write) {
  const Place place = find(reinterpret_cast<uintptr_t>(number), sizeof(*number), write);
  if (place.space != Space::device) fault("a flag or a counter of tickets that is no device memory");
  return {place.cells, sizeof(*number) / unit};
}
}  // namespace

void release(int32_t* flag, int32_t value) {
  const Actor& a = running.actor;
  for (Cell& c : cells_of(flag, true)) c.write = stamp_of(a);
  memory().order.release(reinterpret_cast<uintptr_t>(flag), value, a);
  std::memcpy(flag, &value, sizeof(value));
}
int32_t await(const int32_t* flag, int32_t at_least) {
  const Actor& a = running.actor;
  const auto p = reinterpret_cast<uintptr_t>(flag);
  if (cells_of(flag, false).front().write.block == 0) unwritten(p, false);
  int32_t value;
  std::memcpy(&value, flag, sizeof(value));
  if (value < at_least)
    fault(fmt::format("awaits {} in {}, which has {}: no block before this one has released it", at_least, name_of(p),
                      value));
  return memory().order.await(p, value, at_least, a);
}

int32_t take_ticket(int32_t* counter) {
  const Actor& a = running.actor;
  const auto p = reinterpret_cast<uintptr_t>(counter);
  const std::span<Cell> cells = cells_of(counter, true);
  const Stamp& before = cells.front().write;
  if (before.block == 0) unwritten(p, false);
  if (before.block >= a.first && before.thread != by_ticket)
    fault(fmt::format("takes a ticket of {}, which was written in this launch", name_of(p)));
  Stamp now = stamp_of(a);
  now.thread = by_ticket;
  for (Cell& c : cells) c.write = now;
  int32_t ticket;
  std::memcpy(&ticket, counter, sizeof(ticket));
  const int32_t next = ticket + 1;
  std::memcpy(counter, &next, sizeof(next));
  return ticket;
}

void publish_shared() { memory().published[static_cast<size_t>(running.thread)].push_back(clocks.now()); }
void begin_block() {
  for (std::vector<uint32_t>& times : memory().published) times.clear();
}
void reads_of_product(const void* p, int64_t bytes, const WarpClocks::Row& known) {
  Actor a = running.actor;
  a.knows = &known;
  access<false>(p, bytes, a);
  const Place place = find(reinterpret_cast<uintptr_t>(p), bytes, false);
  if (place.space != Space::shared) fault("a product reads what is not shared memory");
  for (int64_t i = 0; i < bytes / unit; i++) {
    Cell& c = place.cells[i];
    c.read.warps |= 0xfu << a.warp / 4 * 4;
    c.read.thread = many;
    const std::vector<uint32_t>& times = memory().published[c.write.thread];
    if (c.write_published >= times.size() || !WarpClocks::knows(known, c.write.warps, times[c.write_published]))
      fault(fmt::format("a product reads {}, which thread {} has not published before a barrier between both",
                        name_of(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(i * unit)), c.write.thread));
  }
}

void begins_to_write(void* shared, int64_t bytes) {
  writes(shared, bytes);
  const Place place = find(reinterpret_cast<uintptr_t>(shared), bytes, true);
  if (place.space != Space::shared) fault("an asynchronous copy to what is not shared memory");
  for (int64_t i = 0; i < bytes / unit; i++) place.cells[i].write.block = 0;
}

}  // namespace megalith::simt
