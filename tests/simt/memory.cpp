// What is known of every two bytes of shared and device memory: who wrote and who read them last, and when.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/base/check.h"
#include "tests/simt/machine.h"

// Of the linker: the writable variables of the program.
extern "C" char __data_start, _end;

namespace megalith::simt {

namespace {
constexpr int64_t unit = 2, device_bytes = int64_t{512} << 20, shared_capacity = 256 * 1024, gap = 4096;
constexpr uint16_t many = 0xffff, by_host = 0xfffe;

struct Cell {
  uint32_t write_block = 0, write_barrier = 0, write_order = 0;  // block 0: never written
  uint32_t read_block = 0, read_barrier = 0, read_order = 0;
  uint16_t write_thread = 0, write_warp = 0, read_thread = 0, read_warp = 0;
  uint32_t write_published = 0;  // how often its writer had published then
};

struct Allocation {
  std::string name;
  uintptr_t begin, end;
  bool read_only;
};

struct Copy {
  void* to;
  const void* from;  // nullptr: zeros
  int group;
};
struct Pending {
  uint32_t block = 0;
  int groups = 0;  // committed so far
  std::vector<Copy> copies;
};

template <class T>
T* reserve(int64_t count) {
  void* p = mmap(nullptr, static_cast<size_t>(count) * sizeof(T), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED, "no address space for the simulated device");
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
  int64_t shared_bytes = 0;
  uintptr_t used = device.begin;
  std::vector<Allocation> allocations;
  std::vector<Pending> pending = std::vector<Pending>(1024);
  // Of each thread: how often it has published, and how often when the block last passed a barrier.
  std::vector<uint32_t> published = std::vector<uint32_t>(1024), published_before = std::vector<uint32_t>(1024);
  size_t last = 0;  // allocation of the last access
  int64_t accesses = 0;
};
Memory& memory() {
  static Memory the_one;
  return the_one;
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

const Allocation& holder(uintptr_t p, int64_t bytes, const char* does) {
  for (const Allocation& a : memory().allocations)
    if (p >= a.begin && p + static_cast<uintptr_t>(bytes) <= a.end) return a;
  FAIL("a library {} {} bytes that are not within an allocation of the simulated device", does, bytes);
}

struct Place {
  Cell* cells = nullptr;
  const Allocation* of = nullptr;
  uintptr_t begin = 0;
  bool shared = false;
};
std::string name_of(const Place& place, uintptr_t p) {
  if (place.of) return fmt::format("byte {} of {}", p - place.begin, place.of->name);
  return place.begin ? fmt::format("byte {} of shared memory", p - place.begin) : "a __shared__ variable";
}

Place find(uintptr_t p, int64_t bytes, bool write) {
  Memory& m = memory();
  if (m.device.holds(p)) {
    const Allocation& a = allocation(p, bytes, write);
    if (write && a.read_only) fault(fmt::format("writes to {}, which is read-only", a.name));
    return {m.device.cell(p), &a, a.begin, false};
  }
  if (m.dynamic.holds(p)) {
    if (p < m.shared || p + static_cast<uintptr_t>(bytes) > m.shared + static_cast<uintptr_t>(m.shared_bytes))
      fault(fmt::format("{} {} bytes at byte {} of shared memory, the launch asked for {}", verb(write), bytes,
                        static_cast<int64_t>(p) - static_cast<int64_t>(m.shared), m.shared_bytes));
    return {m.dynamic.cell(p), nullptr, m.shared, true};
  }
  if (m.fixed.holds(p)) return {m.fixed.cell(p), nullptr, 0, true};
  return {};
}

// Is what `thread` of `warp` did in `block`, at (barrier, order), ordered before what `a` does now?
bool ordered(const Actor& a, uint32_t block, uint32_t barrier, uint32_t order, uint16_t thread, uint16_t warp) {
  if (block != a.block) return block < a.first;  // an earlier launch; blocks of one launch have no order
  return thread == a.thread || barrier < a.barrier || (warp == a.warp && order < a.order);
}

// What another block did to shared memory was done to its own.
bool lives(uint32_t block, const Place& place, const Actor& a) { return place.shared ? block == a.block : block != 0; }

[[noreturn]] void race(const Place& place, uintptr_t p, bool write, bool was_write, const Actor& a, uint32_t block,
                       uint16_t thread) {
  const std::string who = block != a.block ? fmt::format("block {} of this launch", block - a.first)
                          : thread == many ? "other threads"
                                           : fmt::format("thread {} of the block", thread);
  fault(fmt::format("race: {} {}, which {} {} with no barrier between", verb(write), name_of(place, p), who,
                    was_write ? "wrote" : "read"));
}

void read_cell(Cell& c, const Place& place, uintptr_t p, const Actor& a) {
  if (place.shared ? c.write_block != a.block : c.write_block == 0)
    fault(fmt::format("reads {}, which no thread{} has written (or whose asynchronous copy nobody waited for)",
                      name_of(place, p), place.shared ? " of the block" : ""));
  if (!ordered(a, c.write_block, c.write_barrier, c.write_order, c.write_thread, c.write_warp))
    race(place, p, false, true, a, c.write_block, c.write_thread);
  const bool join = lives(c.read_block, place, a) &&
                    !ordered(a, c.read_block, c.read_barrier, c.read_order, c.read_thread, c.read_warp);
  c.read_thread = join ? many : a.thread;
  c.read_warp = join && c.read_warp != a.warp ? many : a.warp;
  c.read_block = a.block;
  c.read_barrier = a.barrier;
  c.read_order = a.order;
}

void write_cell(Cell& c, const Place& place, uintptr_t p, const Actor& a) {
  if (lives(c.write_block, place, a) &&
      !ordered(a, c.write_block, c.write_barrier, c.write_order, c.write_thread, c.write_warp))
    race(place, p, true, true, a, c.write_block, c.write_thread);
  if (lives(c.read_block, place, a) &&
      !ordered(a, c.read_block, c.read_barrier, c.read_order, c.read_thread, c.read_warp))
    race(place, p, true, false, a, c.read_block, c.read_thread);
  c.write_block = a.block;
  c.write_barrier = a.barrier;
  c.write_order = a.order;
  c.write_thread = a.thread;
  c.write_warp = a.warp;
  c.write_published = memory().published[a.thread];
}

void access(const void* pointer, int64_t bytes, bool write, int lane) {
  if (!in_kernel()) return;
  const auto p = reinterpret_cast<uintptr_t>(pointer);
  const Place place = find(p, bytes, write);
  if (!place.cells) return;
  memory().accesses++;
  const Actor a = actor(lane);
  const int64_t cells = (static_cast<int64_t>(p % unit) + bytes + unit - 1) / unit;
  for (int64_t i = 0; i < cells; i++) {
    if (write) {
      write_cell(place.cells[i], place, p + static_cast<uintptr_t>(i * unit), a);
    } else {
      read_cell(place.cells[i], place, p + static_cast<uintptr_t>(i * unit), a);
    }
  }
}

Pending& pending_of_thread() {
  Pending& p = memory().pending[static_cast<size_t>(running_thread())];
  const uint32_t block = actor(-1).block;
  if (p.block != block) p = {.block = block, .groups = 0, .copies = {}};
  return p;
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
    for (Cell* c = m.device.cell(begin); c != m.device.cell(end + unit - 1); c++)
      *c = {.write_block = 1, .write_thread = by_host};
  return reinterpret_cast<void*>(begin);
}

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
    CHECK(c->write_block, "a library reads byte {} of {}, which nobody has written",
          p - a.begin + static_cast<uintptr_t>(c - m.device.cell(p)) * unit, a.name);
}

void writes_by_library(void* pointer, int64_t bytes) {
  Memory& m = memory();
  const auto p = reinterpret_cast<uintptr_t>(pointer);
  const Allocation& a = holder(p, bytes, "writes");
  CHECK(!a.read_only, "a library writes to {}, which is read-only", a.name);
  std::fill(m.device.cell(p), m.device.cell(p + static_cast<uintptr_t>(bytes) + unit - 1),
            Cell{.write_block = 1, .write_thread = by_host});
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

void begin_block(int64_t shared_bytes) { memory().shared_bytes = shared_bytes; }
char* shared_begin() { return reinterpret_cast<char*>(memory().shared); }
int64_t accesses() { return memory().accesses; }

void reads(const void* p, int64_t bytes, int lane) { access(p, bytes, false, lane); }
void writes(void* p, int64_t bytes) { access(p, bytes, true, -1); }

void publish_shared() { memory().published[static_cast<size_t>(running_thread())]++; }
void barrier_passed(int threads) {
  Memory& m = memory();
  std::copy_n(m.published.begin(), threads, m.published_before.begin());
}
void reads_of_product(const void* p, int64_t bytes) {
  reads(p, bytes);
  const Place place = find(reinterpret_cast<uintptr_t>(p), bytes, false);
  if (!place.shared) fault("a product reads what is not shared memory");
  for (int64_t i = 0; i < bytes / unit; i++)
    if (const Cell& c = place.cells[i]; c.write_published >= memory().published_before[c.write_thread])
      fault(fmt::format("a product reads {}, which thread {} has not published before the last barrier",
                        name_of(place, reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(i * unit)),
                        c.write_thread));
}

void copy_async(void* shared, const void* global, bool valid) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 || (valid && reinterpret_cast<uintptr_t>(global) % 16))
    fault("an asynchronous copy of 16 bytes is misaligned");
  if (valid) reads(global, 16);
  writes(shared, 16);
  const Place place = find(reinterpret_cast<uintptr_t>(shared), 16, true);
  if (!place.shared) fault("an asynchronous copy to what is not shared memory");
  for (int i = 0; i < 16 / unit; i++) place.cells[i].write_block = 0;  // under way
  Pending& p = pending_of_thread();
  p.copies.push_back({shared, valid ? global : nullptr, p.groups});
}
void copy_async_commit() { pending_of_thread().groups++; }
void copy_async_wait(int but) {
  Pending& p = pending_of_thread();
  const auto done = [&](const Copy& c) { return c.group < p.groups - but; };
  for (const Copy& c : p.copies) {
    if (!done(c)) continue;
    if (c.from) {
      std::memcpy(c.to, c.from, 16);
    } else {
      std::memset(c.to, 0, 16);
    }
    writes(c.to, 16);
  }
  std::erase_if(p.copies, done);
}

}  // namespace megalith::simt
