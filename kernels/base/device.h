// The GPU of this process, behind plain functions, so that no other file asks whether CUDA is in the build. Two files
// implement them, of which CMake takes one: device_present.cpp, and device_absent.cpp, where in_build() is false,
// count() is 0 and everything else fails. Needs no CUDA header.
//
// A process works with one GPU, the one selected; every host thread that calls anything below `select` has to select it
// first. Errors name the call, the GPU and the remedy; a failed kernel shows in a later call, as CUDA has it. What
// releases and destroys never throws: at the end of a broken process nobody would catch it. While an exception
// propagates memory is not released: that would wait for the GPU, which may wait for another one that never comes.
//
// The host waits for the GPU in synchronize(), where memory is released, and in a copy to common memory; in
// nothing else here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

struct CUstream_st;  // of the CUDA runtime
struct CUevent_st;
struct CUgraphExec_st;

namespace megalith::device {

bool in_build();
// What the build has code for, as CMAKE_CUDA_ARCHITECTURES has it: "80-real, 90a-real, 100".
std::string architectures();
// Before anything below: some kernels wait for other GPUs, and no other kernel may queue after one that does. So each
// stream gets a connection of its own to the GPU, as far as there are enough, and kernels are loaded at the beginning,
// since loading one can wait for those that run. Values that the environment sets (CUDA_DEVICE_MAX_CONNECTIONS,
// CUDA_MODULE_LOADING, CUDA_MODULE_DATA_LOADING) are kept.
void expect_waiting_kernels();
// GPUs that this process sees; 0 without any driver. Error: a driver too old for this build.
int count();
// Why this build cannot work on a GPU that is there, with the remedy; empty: it can. That is a compute capability below
// 8.0, whose chips lack what the kernels are written with, or one that this build has no code for.
std::string unusable(int index);
void select(int index);

struct Properties {
  int index = 0;  // as CUDA_VISIBLE_DEVICES leaves it
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int processors = 0;
  int64_t memory = 0, free = 0;  // bytes
  int64_t cache = 0;             // bytes of the last level (L2)
  int64_t shared_memory = 0;     // bytes that a block may have, static and dynamic together, when it asks
  std::string id;                // the same in every process, whatever it calls the GPU
  std::string driver, runtime;   // the CUDA version that the driver supports, and the one of this build: "13.0"
};
Properties properties();

// How one GPU reads another's memory: through the host, over PCIe, or over NVLink, whose mark is that atomics cross it.
enum class Link { none, peer, nvlink };
Link link(int from, int to);

// Memory of the GPU, and pinned memory of the host, which the GPU copies from and to by itself. `what` is for the
// message.
struct Release {
  void (*how)(void*) = nullptr;
  void operator()(void* p) const noexcept { how(p); }
};
using Memory = std::unique_ptr<void, Release>;
Memory allocate(int64_t bytes, const std::string& what);
Memory allocate_pinned(int64_t bytes, const std::string& what);

// Streams are orders of work; an event is a place in one. Neither follows the default stream of CUDA.
struct Destroy {
  void operator()(CUstream_st* stream) const noexcept;
  void operator()(CUevent_st* event) const noexcept;
  void operator()(CUgraphExec_st* graph) const noexcept;
};
using OwnedStream = std::unique_ptr<CUstream_st, Destroy>;
using OwnedEvent = std::unique_ptr<CUevent_st, Destroy>;
// Blocks of an urgent stream are scheduled before those of others: for communication.
OwnedStream make_stream(bool urgent);
OwnedEvent make_event();
OwnedEvent make_timed_event();  // dearer to record
void record(CUevent_st* event, CUstream_st* stream);
// Work enqueued on `stream` from now on starts after the event; the host goes on.
void wait(CUstream_st* stream, CUevent_st* event);
bool passed(CUevent_st* event);
// On the GPU's clock, between two timed events that have passed.
double seconds_between(CUevent_st* begin, CUevent_st* end);

// Kernels that are launched many times as one, with the arguments that they had when they were captured. What is
// enqueued on a stream between begin_capture() and the call that ends the capture is not run but kept: kernels alone,
// of this thread; no event, no copy, and the host neither asks nor waits. A graph is one place in the stream's order
// each time that it is launched, and may be destroyed while it runs.
using OwnedGraph = std::unique_ptr<CUgraphExec_st, Destroy>;
void begin_capture(CUstream_st* stream);
OwnedGraph end_capture(CUstream_st* stream);
void drop_capture(CUstream_st* stream) noexcept;  // ends it, and what was captured is lost
void launch(CUstream_st* stream, CUgraphExec_st* graph);

// The host waits.
void synchronize(CUstream_st* stream);

// Enqueued, between the GPU, pinned and common memory; common memory is copied before the call returns or, from the
// GPU, may make it wait.
void copy(CUstream_st* stream, void* to, const void* from, int64_t bytes);

// A named stretch of the host's time line in profilers (NVTX).
class Range {
 public:
  explicit Range(const char* name) noexcept;
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace megalith::device
