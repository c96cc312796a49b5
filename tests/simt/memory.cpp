// The machine knows of every two bytes of shared and device memory who wrote and who read them last, and when.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/system/check.h"
#include "tests/simt/block_order.h"
#include "tests/simt/machine.h"
#include "tests/simt/symbols.h"

// The linker defines these: the program's writable variables lie between them.
extern "C" char __data_start, _end;

namespace megalith::simt {

namespace {
constexpr int64_t unit = 2, device_bytes = int64_t{512} << 20, shared_capacity = 256 * 1024, gap = 4096;
constexpr uint16_t many = 0xffff, by_host = 0xfffe, by_ticket = 0xfffd;

// Who made an access, and when.
struct Stamp {
  uint32_t block = 0, time = 0, warps = 0;  // block 0: no access; warps: a bit for each
  uint16_t thread = 0;
};
Stamp stamp_of(const Actor& a) {
  return {.block = a.block, .time = clocks.now(), .warps = 1u << a.warp, .thread = a.thread};
}
struct Cell {
  Stamp write, read;             // the last of each
  uint32_t write_published = 0;  // how often its writer had published then
};

constexpr Cell written_by_host{.write = {.block = 1, .thread = by_host}, .read = {}};

struct Allocation {
  std::string name;
  uintptr_t begin, end;
  bool read_only;
};

template <class T>
T* reserve(int64_t count) {
  void* p = mmap(nullptr, static_cast<size_t>(count) * sizeof(T), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED, "no address space for the simulated device");
  madvise(p, static_cast<size_t>(count) * sizeof(T), MADV_HUGEPAGE);  // open_to_host goes through all pages
  return static_cast<T*>(p);
}

struct Region {
  uintptr_t begin, end;
  Cell* cells;
  bool holds(uintptr_t p) const { return p - begin < end - begin; }
  Cell* cell(uintptr_t p) const { return cells + (p - begin) / unit; }
};
Region region(void* p, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  return {begin, begin + static_cast<uintptr_t>(bytes), reserve<Cell>(bytes / unit + 1)};
}

struct Memory {
  Region device = region(reserve<char>(device_bytes), device_bytes);
  Region dynamic = region(reserve<char>(2 * shared_capacity), 2 * shared_capacity);
  Region fixed = region(&__data_start, &_end - &__data_start);
  uintptr_t shared = dynamic.begin + gap;
  int64_t shared_bytes = 0, most_shared_bytes = 0, static_bytes = 0;
  std::vector<Symbol> variables;  // __shared__ ones that the launch has touched
  uintptr_t used = device.begin;
  std::vector<Allocation> allocations;
  std::vector<std::vector<uint32_t>> published = std::vector<std::vector<uint32_t>>(1024);  // when, by thread
  BlockOrder order;
  size_t last = 0;  // allocation of the last access
  int64_t accesses = 0;
} the_memory;
Memory& memory() { return the_memory; }

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

const Allocation& holder(uintptr_t p, int64_t bytes, const char* does) {
  for (const Allocation& a : memory().allocations)
    if (p >= a.begin && p + static_cast<uintptr_t>(bytes) <= a.end) return a;
  FAIL("a library {} {} bytes that are not within an allocation of the simulated device", does, bytes);
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

void* allocate(const std::string& name, int64_t bytes, Contents contents, int64_t misaligned_by) {
  Memory& m = memory();
  const uintptr_t begin = (m.used + gap + 255) / 256 * 256 + static_cast<uintptr_t>(misaligned_by);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  CHECK(end + gap <= m.device.end, "the simulated device has {} bytes of memory", device_bytes);
  m.used = end;
  m.allocations.push_back({name, begin, end, contents == Contents::read_only});
  if (contents != Contents::unwritten)
    for (Cell* c = m.device.cell(begin); c != m.device.cell(end + unit - 1); c++) *c = written_by_host;
  return reinterpret_cast<void*>(begin);
}

int64_t used_bytes() { return static_cast<int64_t>(memory().used - memory().device.begin); }

namespace {
// Whole pages that are given back read as zeros: nothing written.
void forget(Cell* begin, Cell* end) {
  constexpr uintptr_t page = 4096;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page,
                  last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first >= last) return std::fill(begin, end, Cell{});
  std::memset(static_cast<void*>(begin), 0, first - reinterpret_cast<uintptr_t>(begin));
  std::memset(reinterpret_cast<void*>(last), 0, reinterpret_cast<uintptr_t>(end) - last);
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}
}  // namespace

void release(void* p) {
  Memory& m = memory();
  const auto at = std::find_if(m.allocations.begin(), m.allocations.end(),
                               [&](const Allocation& a) { return a.begin == reinterpret_cast<uintptr_t>(p); });
  CHECK(at != m.allocations.end(), "released what is no allocation of the simulated device");
  forget(m.device.cell(at->begin), m.device.cell(at->end + unit - 1));
  m.allocations.erase(at);
  if (m.allocations.empty()) return clear_memory();
  m.used = 0;  // what lies behind the last that is left is free again
  for (const Allocation& left : m.allocations) m.used = std::max(m.used, left.end);
}

bool is_device_memory(const void* p) { return memory().device.holds(reinterpret_cast<uintptr_t>(p)); }

void reads_by_library(const void* pointer, int64_t bytes) {
  Memory& m = memory();
  const auto p = reinterpret_cast<uintptr_t>(pointer);
  const Allocation& a = holder(p, bytes, "reads");
  for (Cell* c = m.device.cell(p); c != m.device.cell(p + static_cast<uintptr_t>(bytes) + unit - 1); c++)
    CHECK(c->write.block, "a library reads byte {} of {}, which nobody has written",
          p - a.begin + static_cast<uintptr_t>(c - m.device.cell(p)) * unit, a.name);
}

void writes_by_library(void* pointer, int64_t bytes) {
  Memory& m = memory();
  const auto p = reinterpret_cast<uintptr_t>(pointer);
  const Allocation& a = holder(p, bytes, "writes");
  CHECK(!a.read_only, "a library writes to {}, which is read-only", a.name);
  std::fill(m.device.cell(p), m.device.cell(p + static_cast<uintptr_t>(bytes) + unit - 1), written_by_host);
}

void open_to_host(bool open) {
  const Memory& m = memory();
  mprotect(reinterpret_cast<void*>(m.device.begin), m.device.end - m.device.begin,
           open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void clear_memory() {
  Memory& m = memory();
  // Pages given back read as zeros: nothing written.
  const size_t used = m.used - m.device.begin;
  if (used) {
    madvise(reinterpret_cast<void*>(m.device.begin), used, MADV_DONTNEED);
    madvise(m.device.cells, (used / unit + 1) * sizeof(Cell), MADV_DONTNEED);
  }
  m.used = m.device.begin;
  m.allocations.clear();
}

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

void release(int32_t* flag, int32_t value) {
  const Actor& a = running.actor;
  const auto p = reinterpret_cast<uintptr_t>(flag);
  const Place place = find(p, sizeof(*flag), true);
  if (place.space != Space::device) fault("a flag that is no device memory");
  memory().order.release(p, value, a);
  for (uint64_t i = 0; i < sizeof(*flag) / unit; i++) place.cells[i].write = stamp_of(a);
  std::memcpy(flag, &value, sizeof(value));
}
int32_t await(const int32_t* flag, int32_t at_least) {
  const Actor& a = running.actor;
  const auto p = reinterpret_cast<uintptr_t>(flag);
  const Place place = find(p, sizeof(*flag), false);
  if (place.space != Space::device) fault("a flag that is no device memory");
  if (place.cells->write.block == 0) unwritten(p, false);
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
  const Place place = find(p, sizeof(*counter), true);
  if (place.space != Space::device) fault("a counter of tickets that is no device memory");
  if (place.cells->write.block == 0) unwritten(p, false);
  if (place.cells->write.block >= a.first && place.cells->write.thread != by_ticket)
    fault(fmt::format("takes a ticket of {}, which was written in this launch", name_of(p)));
  Stamp now = stamp_of(a);
  now.thread = by_ticket;
  for (uint64_t i = 0; i < sizeof(*counter) / unit; i++) place.cells[i].write = now;
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
