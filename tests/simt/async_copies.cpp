// Asynchronous copies from device to shared memory, each made when it is waited for: as late as a GPU may make it.
#include <cstring>
#include <vector>

#include "tests/simt/machine.h"

namespace megalith::simt {

namespace {
constexpr int64_t copied = 16;  // bytes, by each

struct Copy {
  void* to;
  const void* from;  // nullptr: zeros
  int group;
};
// One thread has these.
struct Pending {
  uint32_t block = 0;
  int groups = 0;  // committed so far
  std::vector<Copy> copies;
};

Pending& pending_of_thread() {
  static std::vector<Pending> of_threads(1024);
  Pending& p = of_threads[static_cast<size_t>(running.thread)];
  const uint32_t block = running.actor.block;
  if (p.block != block) p = {.block = block, .groups = 0, .copies = {}};
  return p;
}
}  // namespace

void copy_async(void* shared, const void* global, bool valid) {
  if (reinterpret_cast<uintptr_t>(shared) % copied || (valid && reinterpret_cast<uintptr_t>(global) % copied))
    fault("an asynchronous copy of 16 bytes is misaligned");
  if (valid) reads(global, copied);
  begins_to_write(shared, copied);
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
      std::memcpy(c.to, c.from, copied);
    } else {
      std::memset(c.to, 0, copied);
    }
    writes(c.to, copied);
  }
  std::erase_if(p.copies, done);
}

}  // namespace megalith::simt
