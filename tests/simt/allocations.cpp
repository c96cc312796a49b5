#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "kernels/system/check.h"
#include "tests/simt/watched_memory.h"

// The linker defines these: the program's writable variables lie between them.
extern "C" char __data_start, _end;

namespace megalith::simt {

namespace {
constexpr int64_t device_bytes = int64_t{512} << 20, shared_capacity = 256 * 1024;
constexpr Cell written_by_host{.write = {.block = 1, .thread = by_host}, .read = {}};

template <class T>
T* reserve(int64_t count) {
  void* p = mmap(nullptr, static_cast<size_t>(count) * sizeof(T), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED, "no address space for the simulated device");
  madvise(p, static_cast<size_t>(count) * sizeof(T), MADV_HUGEPAGE);  // open_to_host goes through all pages
  return static_cast<T*>(p);
}

Region region(void* p, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  return {begin, begin + static_cast<uintptr_t>(bytes), reserve<Cell>(bytes / unit + 1)};
}

const Allocation& holder(uintptr_t p, int64_t bytes, const char* does) {
  for (const Allocation& a : watched.allocations)
    if (p >= a.begin && p + static_cast<uintptr_t>(bytes) <= a.end) return a;
  FAIL("a library {} {} bytes that are not within an allocation of the simulated device", does, bytes);
}
}  // namespace

Memory watched{.device = region(reserve<char>(device_bytes), device_bytes),
               .dynamic = region(reserve<char>(2 * shared_capacity), 2 * shared_capacity),
               .fixed = region(&__data_start, &_end - &__data_start)};

void* allocate(const std::string& name, int64_t bytes, Contents contents, int64_t misaligned_by) {
  Memory& m = watched;
  const uintptr_t begin = (m.used + gap + 255) / 256 * 256 + static_cast<uintptr_t>(misaligned_by);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  CHECK(end + gap <= m.device.end, "the simulated device has {} bytes of memory", device_bytes);
  m.used = end;
  m.allocations.push_back({name, begin, end, contents == Contents::read_only});
  if (contents != Contents::unwritten)
    for (Cell* c = m.device.cell(begin); c != m.device.cell(end + unit - 1); c++) *c = written_by_host;
  return reinterpret_cast<void*>(begin);
}

int64_t used_bytes() { return static_cast<int64_t>(watched.used - watched.device.begin); }

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
  Memory& m = watched;
  const auto at = std::find_if(m.allocations.begin(), m.allocations.end(),
                               [&](const Allocation& a) { return a.begin == reinterpret_cast<uintptr_t>(p); });
  CHECK(at != m.allocations.end(), "released what is no allocation of the simulated device");
  forget(m.device.cell(at->begin), m.device.cell(at->end + unit - 1));
  m.allocations.erase(at);
  if (m.allocations.empty()) return clear_memory();
  m.used = 0;  // memory after the last allocation can be used again
  for (const Allocation& left : m.allocations) m.used = std::max(m.used, left.end);
}

bool is_device_memory(const void* p) { return watched.device.holds(reinterpret_cast<uintptr_t>(p)); }

void reads_by_library(const void* pointer, int64_t bytes) {
  Memory& m = watched;
  const auto p = reinterpret_cast<uintptr_t>(pointer);
  const Allocation& a = holder(p, bytes, "reads");
  for (Cell* c = m.device.cell(p); c != m.device.cell(p + static_cast<uintptr_t>(bytes) + unit - 1); c++)
    CHECK(c->write.block, "a library reads byte {} of {}, which nobody has written",
          p - a.begin + static_cast<uintptr_t>(c - m.device.cell(p)) * unit, a.name);
}

void writes_by_library(void* pointer, int64_t bytes) {
  Memory& m = watched;
  const auto p = reinterpret_cast<uintptr_t>(pointer);
  const Allocation& a = holder(p, bytes, "writes");
  CHECK(!a.read_only, "a library writes to {}, which is read-only", a.name);
  std::fill(m.device.cell(p), m.device.cell(p + static_cast<uintptr_t>(bytes) + unit - 1), written_by_host);
}

void open_to_host(bool open) {
  const Memory& m = watched;
  mprotect(reinterpret_cast<void*>(m.device.begin), m.device.end - m.device.begin,
           open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void clear_memory() {
  Memory& m = watched;
  // Pages given back read as zeros: nothing written.
  const size_t used = m.used - m.device.begin;
  if (used) {
    madvise(reinterpret_cast<void*>(m.device.begin), used, MADV_DONTNEED);
    madvise(m.device.cells, (used / unit + 1) * sizeof(Cell), MADV_DONTNEED);
  }
  m.used = m.device.begin;
  m.allocations.clear();
}

}  // namespace megalith::simt
