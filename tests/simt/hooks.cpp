// What -fsanitize=thread and -fsanitize=bounds make the compiler call, answered by the machine instead of the runtimes
// of those sanitizers, and what device_primitives.h has it call instead of the C library's copies. This file is
// compiled without them.
#include <cstdint>
#include <cstring>

#include "kernels/system/check.h"
#include "tests/simt/machine.h"

namespace {
using megalith::simt::reads, megalith::simt::writes;

struct Source {
  const char* file;
  uint32_t line, column;
};
}  // namespace

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define ACCESS_OF(n)                                        \
  void __tsan_read##n(void* p) { reads(p, n); }             \
  void __tsan_write##n(void* p) { writes(p, n); }           \
  void __tsan_unaligned_read##n(void* p) { reads(p, n); }   \
  void __tsan_unaligned_write##n(void* p) { writes(p, n); } \
  void __tsan_volatile_read##n(void* p) { reads(p, n); }    \
  void __tsan_volatile_write##n(void* p) { writes(p, n); }
ACCESS_OF(1)
ACCESS_OF(2)
ACCESS_OF(4)
ACCESS_OF(8)
ACCESS_OF(16)
void __tsan_read_range(void* p, unsigned long n) { reads(p, static_cast<int64_t>(n)); }
void __tsan_write_range(void* p, unsigned long n) { writes(p, static_cast<int64_t>(n)); }

void* watched_memcpy(void* to, const void* from, size_t n) {
  reads(from, static_cast<int64_t>(n));
  writes(to, static_cast<int64_t>(n));
  return std::memcpy(to, from, n);
}
void* watched_memmove(void* to, const void* from, size_t n) {
  reads(from, static_cast<int64_t>(n));
  writes(to, static_cast<int64_t>(n));
  return std::memmove(to, from, n);
}
void* watched_memset(void* to, int byte, size_t n) {
  writes(to, static_cast<int64_t>(n));
  return std::memset(to, byte, n);
}

void __ubsan_handle_out_of_bounds(void* data, uintptr_t index) {
  const Source& at = *static_cast<const Source*>(data);
  megalith::simt::fault(
      fmt::format("index {} is outside its array, {}:{}", static_cast<int64_t>(index), at.file, at.line));
}
}
