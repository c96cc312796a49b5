#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <exception>
#include <map>
#include <string_view>
#include <vector>

#include "kernels/system/check.h"
#include "tests/simt/machine.h"

namespace megalith::simt {

Running running;
WarpClocks clocks;

namespace {
constexpr int warp_size = 32, warpgroup_size = 128, max_threads = 1024;
constexpr int64_t unasked_shared_memory = 48 << 10;  // of a block whose kernel nobody allowed more
constexpr size_t stack_bytes = 128 * 1024, guard_bytes = 4096;

// Where a fiber or the scheduler goes on. The compiler's own jumps: those of the C library ask each time for handlers
// of a thread that ends.
using JumpPoint = std::array<void*, 5>;
[[noreturn, gnu::noinline]] void jump(JumpPoint& to) { __builtin_longjmp(to.data(), 1); }

enum class State { ready, at_barrier, at_named_barrier, at_meeting, ended };

struct Fiber {
  State state = State::ended;
  bool started = false;
  dim3 index;
  Where where;
  const char* operation = nullptr;
  int group = warp_size;  // of threads that meet
  int barrier = 0;        // the named one
  unsigned mask = 0;      // of each of its warps
  void* mine = nullptr;
  JumpPoint at;
  char* stack = nullptr;
};

Chip chip_of_environment() {
  const char* name = std::getenv("MEGALITH_SIMULATED_GPU");
  if (!name) return h100;
  for (const Chip& c : {a100, h100, l4})
    if (std::string_view(name) == c.name) return c;
  FAIL("MEGALITH_SIMULATED_GPU={}: the simulated GPU is an A100, an H100 or an L4", name);
}

struct Machine {
  Chip chip = chip_of_environment();
  std::map<const void*, int64_t> allowed;  // dynamic shared memory, by kernel
  std::vector<Fiber> fibers = std::vector<Fiber>(max_threads);
  Grid grid;
  dim3 block;
  const std::function<void()>* thread = nullptr;
  int threads = 0;
  uint32_t number = 1, first = 0;  // 1 is the host
  std::string fault;
  Counters counters;
  JumpPoint scheduler;

  Machine() {
    const size_t each = stack_bytes + guard_bytes;
    void* p =
        mmap(nullptr, each * max_threads, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED, "no address space for the stacks of {} fibers", max_threads);
    for (int i = 0; i < max_threads; i++) {
      char* stack = static_cast<char*>(p) + each * static_cast<size_t>(i);
      mprotect(stack, guard_bytes, PROT_NONE);  // a stack that overflows ends the program here
      fibers[static_cast<size_t>(i)].stack = stack + guard_bytes;
    }
  }
} the_machine;
Machine& machine() { return the_machine; }
Fiber& fiber(int i) { return the_machine.fibers[static_cast<size_t>(i)]; }

std::string place(const Where& where) { return fmt::format("{}:{}", where.file_name(), where.line()); }
std::string triple(const dim3& d) { return fmt::format("({}, {}, {})", d.x, d.y, d.z); }
std::string about(int thread, const std::string& what) {
  const Machine& m = machine();
  return fmt::format("kernel {}, block {}, thread {}: {}", m.grid.kernel, triple(m.block), triple(fiber(thread).index),
                     what);
}
std::string doing(const Fiber& f) {
  switch (f.state) {
    case State::at_barrier: return "waits at sync_threads, " + place(f.where);
    case State::at_named_barrier:
      return fmt::format("waits at barrier {}, {}, to which {} of {} threads have come", f.barrier, place(f.where),
                         clocks.arrived(f.barrier), clocks.expected(f.barrier));
    case State::at_meeting: return fmt::format("is at {} of mask {:#x}, {}", f.operation, f.mask, place(f.where));
    default: return "has ended";
  }
}

// Threads run in order: each that waits or has ended hands over to the next that is ready, the last to the scheduler.
// No frame with a __builtin_setjmp changes a local variable between that and its return.
void hand_over();

// One fiber for every thread index; it serves block after block.
void fiber_main() {
  Machine& m = machine();
  for (;;) {
    try {
      (*m.thread)();
    } catch (const std::exception& e) {
      m.fault = about(running.thread, e.what());
    }
    if (!m.fault.empty()) jump(m.scheduler);
    fiber(running.thread).state = State::ended;
    hand_over();
  }
}

[[noreturn, gnu::noinline]] void go_on_as(int i) {
  Machine& m = machine();
  m.counters.switches++;
  Fiber& f = fiber(i);
  const int warp = i / warp_size;
  running = {.thread = i,
             .actor = {.block = m.number,
                       .first = m.first,
                       .knows = &clocks.row(warp),
                       .thread = static_cast<uint16_t>(i),
                       .warp = static_cast<uint16_t>(warp)},
             .index = f.index};
  if (f.started) jump(f.at);
  f.started = true;
  static ucontext_t context;
  getcontext(&context);
  context.uc_stack = {.ss_sp = f.stack, .ss_flags = 0, .ss_size = stack_bytes};
  context.uc_link = nullptr;
  makecontext(&context, fiber_main, 0);
  setcontext(&context);
  std::abort();  // it has not begun
}

// The first thread from this one on that is ready, or the number of threads.
int next_ready(int i) {
  const Machine& m = machine();
  while (i < m.threads && fiber(i).state != State::ready) i++;
  return i;
}

void hand_over() {
  Machine& m = machine();
  if (__builtin_setjmp(fiber(running.thread).at.data()) == 0) {
    const int next = next_ready(running.thread + 1);
    if (next == m.threads) jump(m.scheduler);
    go_on_as(next);
  }
}

// The scheduler: thread i, and those that it hands over to.
[[gnu::noinline]] void run_from(int i) {
  if (__builtin_setjmp(machine().scheduler.data()) == 0) go_on_as(i);
  running.thread = -1;
}

// Nobody can go on: all at one barrier, or a fault, which is described.
void release_barrier_or_fault() {
  Machine& m = machine();
  for (int i = 0; i < m.threads; i++) {
    const Fiber& f = fiber(i);
    if (f.state != State::at_meeting) continue;
    for (int k = 0; k < f.group; k++) {
      const Fiber& other = fiber(i / f.group * f.group + k);
      if (!(f.mask >> k % warp_size & 1)) continue;
      if (other.state != State::at_meeting || other.mask != f.mask || other.where.line() != f.where.line() ||
          other.operation != f.operation)
        FAIL("{}", about(i, fmt::format("{} of mask {:#x}, {}, waits for lane {}, which {}", f.operation, f.mask,
                                        place(f.where), k, doing(other))));
    }
  }
  for (int i = 0; i < m.threads; i++)
    if (fiber(i).state == State::at_named_barrier) FAIL("{}", about(i, doing(fiber(i))));
  const Fiber* waits = nullptr;
  int waiting = -1;
  for (int i = 0; i < m.threads && !waits; i++)
    if (fiber(i).state == State::at_barrier) waits = &fiber(waiting = i);
  for (int i = 0; i < m.threads; i++)
    if (fiber(i).state != State::at_barrier || fiber(i).where.line() != waits->where.line())
      FAIL("{}", about(waiting, fmt::format("divergent barrier: it waits at sync_threads, {}, but thread {} {}",
                                            place(waits->where), triple(fiber(i).index), doing(fiber(i)))));
  clocks.sync_all();
  for (int i = 0; i < m.threads; i++) fiber(i).state = State::ready;
}

void run_block() {
  Machine& m = machine();
  m.number++;
  clocks.begin(m.threads / warp_size);
  begin_block();
  for (int i = 0; i < m.threads; i++) fiber(i).state = State::ready;
  for (;;) {
    const int first = next_ready(0);
    if (first < m.threads) {
      run_from(first);
      if (!m.fault.empty()) FAIL("{}", m.fault);
    } else {
      bool all_ended = true;
      for (int i = 0; i < m.threads; i++) all_ended = all_ended && fiber(i).state == State::ended;
      if (all_ended) {
        if (const std::string left = clocks.unfinished(); !left.empty()) FAIL("{}", about(0, left));
        return;
      }
      release_barrier_or_fault();
    }
  }
}
}  // namespace

const Chip& chip() { return machine().chip; }
AsChip::AsChip(const Chip& chip) : before_(machine().chip) {
  machine().chip = chip;
  machine().allowed.clear();
}
AsChip::~AsChip() { machine().chip = before_; }

void allow_shared_memory(const char* kernel, const void* function, int64_t bytes) {
  const Chip& c = chip();
  CHECK(bytes <= c.shared_memory, "{}: {} bytes of shared memory; a block of the simulated {} has {} at most", kernel,
        bytes, c.name, c.shared_memory);
  machine().allowed[function] = bytes;
}

void run(const Grid& grid, const std::function<void()>& thread) {
  Machine& m = machine();
  CHECK(!in_kernel(), "{}: a kernel launches a kernel", grid.kernel);
  const int64_t threads = int64_t{grid.threads.x} * grid.threads.y * grid.threads.z;
  CHECK(threads > 0 && threads <= max_threads && threads % warp_size == 0,
        "{}: {} threads a block, expected 1 to 32 whole warps", grid.kernel, threads);
  CHECK(grid.blocks.x > 0 && grid.blocks.y > 0 && grid.blocks.z > 0 && grid.blocks.x < 1u << 31 &&
            grid.blocks.y < 65536 && grid.blocks.z < 65536,
        "{}: a grid of {} blocks", grid.kernel, triple(grid.blocks));
  const auto allowed = m.allowed.find(grid.function);
  const bool asked = allowed != m.allowed.end() && allowed->second >= grid.shared_bytes;
  const int64_t most = asked ? m.chip.shared_memory : unasked_shared_memory;
  CHECK(grid.shared_bytes <= most, "{}: {} bytes of shared memory, of which it is allowed {}", grid.kernel,
        grid.shared_bytes, most);
  if (executor()) return executor()(grid);
  begin_launch(grid.shared_bytes, most);
  m.grid = grid;
  m.thread = &thread;
  m.threads = static_cast<int>(threads);
  m.first = m.number + 1;
  m.fault.clear();
  for (int i = 0; i < m.threads; i++) {
    const auto u = static_cast<unsigned>(i);
    fiber(i).index = {u % grid.threads.x, u / grid.threads.x % grid.threads.y, u / grid.threads.x / grid.threads.y};
  }
  try {
    each_block(grid, [&](dim3 index) {
      m.block = index;
      m.counters.threads += m.threads;
      run_block();
    });
  } catch (...) {
    for (Fiber& f : m.fibers) f.started = false;  // they stopped in the middle; the next launch makes new ones
    throw;
  }
}

Executor& executor() {
  static Executor none;
  return none;
}

Counters counters() {
  Counters c = machine().counters;
  c.accesses = accesses();
  return c;
}

dim3 thread_index() { return running.index; }
dim3 block_index() { return machine().block; }
dim3 block_size() { return machine().grid.threads; }
dim3 grid_size() { return machine().grid.blocks; }

void barrier(Where where) {
  Fiber& f = fiber(running.thread);
  f.where = where;
  f.state = State::at_barrier;
  hand_over();
}

namespace {
void meet_group(int group, const char* operation, unsigned mask, void* mine, void (*complete)(void* const* threads),
                Where where) {
  Machine& m = machine();
  const int self = running.thread, first = self / group * group;
  Fiber& f = fiber(self);
  if (!(mask >> self % warp_size & 1))
    fault(fmt::format("{} of mask {:#x} without itself, {}", operation, mask, place(where)));
  if (first + group > m.threads) fault(fmt::format("{}, {}: the block ends within the group", operation, place(where)));
  f.state = State::at_meeting;
  f.operation = operation;
  f.group = group;
  f.mask = mask;
  f.mine = mine;
  f.where = where;
  for (int n = 1; n < group; n++) {  // threads run in order, so the next one is missing most often
    const int k = (self + n) % group;
    if (!(mask >> k % warp_size & 1)) continue;
    const Fiber& other = fiber(first + k);
    if (other.state != State::at_meeting || other.mask != mask || other.operation != operation ||
        other.where.line() != where.line() || other.where.file_name() != where.file_name()) {
      hand_over();
      return;
    }
  }
  std::array<void*, warpgroup_size> threads;  // of the group
  for (int k = 0; k < group; k++) {
    Fiber& other = fiber(first + k);
    const bool meets = mask >> k % warp_size & 1;
    threads[static_cast<size_t>(k)] = meets ? other.mine : nullptr;
    if (meets) other.state = State::ready;
  }
  complete(threads.data());
}
}  // namespace

void meet(const char* operation, unsigned mask, void* mine, void (*complete)(void* const* lanes), Where where) {
  meet_group(warp_size, operation, mask, mine, complete, where);
}
void meet_warpgroup(const char* operation, void* mine, void (*complete)(void* const* threads), Where where) {
  meet_group(warpgroup_size, operation, ~0u, mine, complete, where);
}

void order_warp() { clocks.sync_warp(running.actor.warp); }

void named_barrier(int id, int threads, bool waits, Where where) {
  struct Coming {
    int id, threads;
    bool waits;
  } mine{id, threads, waits};
  meet(
      waits ? "barrier_sync" : "barrier_arrive", ~0u, &mine,
      [](void* const* lanes) {
        const int warp = running.actor.warp;
        const Coming& c = *static_cast<Coming*>(lanes[0]);
        for (int i = 0; i < warp_size; i++)
          if (static_cast<Coming*>(lanes[i])->id != c.id) fault("lanes of a warp come to different barriers");
        const auto set = [](int of, State state, int barrier) {
          for (int i = of * warp_size; i < (of + 1) * warp_size; i++) {
            fiber(i).state = state;
            fiber(i).barrier = barrier;
          }
        };
        if (c.waits) set(warp, State::at_named_barrier, c.id);
        for (uint32_t on = clocks.come(c.id, c.threads, warp, c.waits); on; on &= on - 1)
          set(std::countr_zero(on), State::ready, 0);
      },
      where);
  if (fiber(running.thread).state == State::at_named_barrier) hand_over();
}

void fault(const std::string& what) {
  Machine& m = machine();
  if (!in_kernel()) FAIL("{}", what);
  m.fault = about(running.thread, what);
  jump(m.scheduler);
}

}  // namespace megalith::simt
