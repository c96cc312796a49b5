// CUDA kernels on the CPU. run() executes a grid block by block; the threads of a block are fibers, run in turn until
// each waits at a barrier or a warp operation or has ended. It finds, and throws an Error that names kernel, block and
// thread:
//
//   - barriers that some thread of the block does not come to, or not at the same line of the source; named barriers
//     that are never completed, or to which threads come for different numbers of threads;
//   - warp operations whose mask names a lane that does not come to the same operation with the same mask;
//   - reads of shared or device memory that nobody has written, and of asynchronous copies not waited for;
//   - accesses outside a tensor or the launch's shared memory, writes to what is read-only, misaligned vectors,
//     indices outside a local or shared array of known size;
//   - launches that the chip refuses: more threads, blocks, or shared memory than it has or the kernel was allowed. A
//     kernel's own __shared__ variables count as soon as it touches them;
//   - data races: two threads at one place, one of them writing, with no barrier between (sync_warp counts within a
//     warp, sync_threads within a block, a named barrier from those that come to those that wait; between blocks
//     release() in front of await(), from the barrier before the one to the barrier after the other);
//   - an await() of what no block that started earlier has released: blocks start in another order with every launch.
//
// How: the .cu files are compiled with -fsanitize=thread and -fsanitize=bounds, but neither runtime is linked;
// hooks.cpp answers the compiler's calls before every access. So kernels use plain pointers and arrays, and a
// __shared__ array is a static variable: every writable variable with a fixed address counts as shared memory when a
// kernel touches it. Fibers are ucontexts that switch by _setjmp and _longjmp, which spares the system calls of
// swapcontext (method: Engelschall, Portable Multithreading, USENIX 2000).
//
// Limits: one machine a process, one thread, because the compiler's hooks have no argument; a place is two bytes, so
// byte arrays race with their neighbours; a partial sync_warp orders the whole warp; reads of one place by several
// warps count as if all were made at the time of the last; no atomics but tickets; registers and __launch_bounds__ are
// known to nvcc alone (tests/ptxas, tests/ptx).
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

struct CUstream_st;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace megalith::simt {

using Where = std::source_location;

// GPUs differ in these. Shared memory: bytes of a block, static and dynamic together, of a kernel that is allowed
// them (CUDA C++ Programming Guide, "Compute Capabilities").
struct Chip {
  const char* name;
  int major, minor;
  int64_t shared_memory;
};
inline constexpr Chip a100{"A100", 8, 0, 163 << 10}, h100{"H100", 9, 0, 227 << 10}, l4{"L4", 8, 9, 99 << 10};
// The environment's MEGALITH_SIMULATED_GPU names one of these; without it the H100, so that every path runs somewhere.
const Chip& chip();
// While it lives, the simulated GPU is this chip.
class AsChip {
 public:
  explicit AsChip(const Chip& chip);
  ~AsChip();
  AsChip(const AsChip&) = delete;
  AsChip& operator=(const AsChip&) = delete;

 private:
  Chip before_;
};

struct Grid {
  const char* kernel;
  dim3 blocks, threads;
  int64_t shared_bytes = 0;
  const void* function = nullptr;  // whose allowance counts
  std::vector<char> parameters{};  // as CUDA lays them out: one behind the other at their natural alignments
};
// A launch does this with each of its blocks, in the order in which they start: another one each time, the same in each
// run of a program.
void each_block(const Grid& grid, const std::function<void(dim3 index)>& start);
// While it lives, blocks start in the order of the grid, x before y before z.
class InGridOrder {
 public:
  InGridOrder();
  ~InGridOrder();
  InGridOrder(const InGridOrder&) = delete;
  InGridOrder& operator=(const InGridOrder&) = delete;

 private:
  bool before_;
};

// From now on launches of `function` may have so much dynamic shared memory; without this, 48 KiB with its own.
void allow_shared_memory(const char* kernel, const void* function, int64_t bytes);
// `thread` is the kernel with its arguments; called once a thread.
void run(const Grid& grid, const std::function<void()>& thread);

// Who executes a launch instead of the fibers, once run() has checked it. None at first.
using Executor = std::function<void(const Grid&)>;
Executor& executor();

// Switches between fibers, threads run and accesses to shared and device memory since the program began.
struct Counters {
  int64_t switches = 0, threads = 0, accesses = 0;
};
Counters counters();

// Device memory: everything that a kernel may be given lies here. One arena a process; clear_memory() gives all of it
// back.
enum class Contents { unwritten, written, read_only };
void* allocate(const std::string& name, int64_t bytes, Contents contents, int64_t misaligned_by = 0);
// Returns the bytes of the device's memory up to the end of the last allocation.
int64_t used_bytes();
void release(void* p);
void clear_memory();
bool is_device_memory(const void* p);
// Accesses of what is no kernel: copies and the GEMM library. Checked like those of a kernel that has the device alone.
void reads_by_library(const void* p, int64_t bytes);
void writes_by_library(void* p, int64_t bytes);
// Whether the host may touch device memory. Where it may not, the process dies of it.
void open_to_host(bool open);

// Work of a stream, done some time before the host's wait for it ends (device.cpp); now, without a stream.
void submit(CUstream_st* stream, std::function<void()> work);
// The same for work that others have to make possible: it is tried again and again, until it says that it is done.
void submit_attempts(CUstream_st* stream, std::function<bool()> attempt);
// Streams still have so much to do: pieces of work, records of events and waits for these.
int64_t work_enqueued();

// The rest is called by kernels, through device_primitives.h.

dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
char* shared_begin();

void barrier(Where where);
// The same at a named barrier, 1 to 15, to which `threads` threads come in whole warps. Without `waits` a thread only
// arrives.
void named_barrier(int id, int threads, bool waits, Where where);
// Waits until every lane of the mask has come with the same operation, mask and line; then the last one calls
// complete(lanes), where lanes[i] is what lane i came with, nullptr outside the mask.
void meet(const char* operation, unsigned mask, void* mine, void (*complete)(void* const* lanes), Where where);
// The same for all threads of a warpgroup.
void meet_warpgroup(const char* operation, void* mine, void (*complete)(void* const* threads), Where where);
void order_warp();  // inside complete: what the lanes did so far is ordered before what they do next

// Before an access of the running thread, or of the lane of its warp that is named.
void reads(const void* p, int64_t bytes);
void reads(const void* p, int64_t bytes, int lane);
void writes(void* p, int64_t bytes);
// Publishes shared memory to the products of warpgroups (warpgroup.h), which see what its writer has published before a
// barrier between both.
void publish_shared();
// Flags between the blocks of a launch, which run one after another: what nobody has released by now, nobody will.
void release(int32_t* flag, int32_t value);
int32_t await(const int32_t* flag, int32_t at_least);
int32_t take_ticket(int32_t* counter);

void copy_async(void* shared, const void* global, bool valid);
void copy_async_commit();
void copy_async_wait(int but);

// Ends the launch with an Error about the running thread.
[[noreturn]] void fault(const std::string& what);

}  // namespace megalith::simt
