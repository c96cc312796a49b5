// The GPU of this process, behind plain functions without CUDA headers, so that no other file asks whether CUDA is in
// the build. CMake takes one of two implementations: device_present.cpp, or device_absent.cpp, where in_build() is
// false, count() is 0 and everything else fails.
//
// A process uses one GPU; every host thread must select it before it calls anything below `select`. Errors name the
// call, the GPU and the remedy; a failed kernel shows in a later call, as always with CUDA. Destructors never throw,
// and leak memory while an exception propagates: to free it would wait for the GPU, which may wait for a peer that
// never comes. The host waits for the GPU in synchronize(), when memory is freed, and in a copy to pageable memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

struct CUstream_st;  // from the CUDA runtime
struct CUevent_st;
struct CUgraphExec_st;

namespace megalith::device {

bool in_build();
// Returns the architectures that the build has code for: "80-real, 90a-real, 100".
std::string architectures();
// Call this before anything below. Some kernels wait for other GPUs, and no other kernel may queue behind one of those.
// So each stream gets a hardware connection of its own, as far as there are enough, and kernels are loaded eagerly,
// since lazy loading can wait for running kernels. Keeps CUDA_DEVICE_MAX_CONNECTIONS, CUDA_MODULE_LOADING and
// CUDA_MODULE_DATA_LOADING if they are set.
void expect_waiting_kernels();
// Returns the number of GPUs that this process sees; 0 without a driver. Error: a driver too old for this build.
int count();
// Returns why this build cannot use the GPU, with the remedy, or "" if it can. Reasons: its compute capability is below
// 8.0, which the kernels need, or the build has no code for it.
std::string unusable(int index);
void select(int index);

struct Properties {
  int index = 0;  // the index among the GPUs that CUDA_VISIBLE_DEVICES shows
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int processors = 0;
  int64_t memory = 0, free = 0;  // bytes
  int64_t cache = 0;             // bytes of L2
  int64_t shared_memory = 0;     // bytes that a block can opt in to, static and dynamic together
  std::string id;                // the same in every process, whatever the index
  std::string driver, runtime;   // the CUDA version that the driver supports, and the version of this build: "13.0"

  bool has_fp8() const { return 10 * major + minor >= 89; }  // products of factors of 8 bits: Ada, Hopper and later
};
Properties properties();

// A Link is how one GPU reads another's memory: through the host, over PCIe, or over NVLink, the only one with atomics.
enum class Link { none, peer, nvlink };
Link link(int from, int to);

// Deleters of GPU memory and of pinned host memory. `what` names the memory in errors.
struct Release {
  void (*how)(void*) = nullptr;
  void operator()(void* p) const noexcept { how(p); }
};
using Memory = std::unique_ptr<void, Release>;
Memory allocate(int64_t bytes, const std::string& what);
Memory allocate_pinned(int64_t bytes, const std::string& what);

// Owned streams and events. They do not synchronize with CUDA's default stream.
struct Destroy {
  void operator()(CUstream_st* stream) const noexcept;
  void operator()(CUevent_st* event) const noexcept;
  void operator()(CUgraphExec_st* graph) const noexcept;
};
using OwnedStream = std::unique_ptr<CUstream_st, Destroy>;
using OwnedEvent = std::unique_ptr<CUevent_st, Destroy>;
// Blocks of an urgent stream are scheduled first: for communication.
OwnedStream make_stream(bool urgent);
OwnedEvent make_event();
OwnedEvent make_timed_event();  // costs more to record
void record(CUevent_st* event, CUstream_st* stream);
// Work enqueued on `stream` after this call starts after the event; the host does not wait.
void wait(CUstream_st* stream, CUevent_st* event);
bool passed(CUevent_st* event);
// Returns the time on the GPU's clock between two timed events that have passed.
double seconds_between(CUevent_st* begin, CUevent_st* end);

// A CUDA graph: kernels that are launched together, with the arguments that they were captured with. Between
// begin_capture() and the end of the capture the stream records and runs nothing. Meanwhile this thread may only launch
// kernels: no events, no copies, no waits of the host. A graph may be destroyed while it runs.
using OwnedGraph = std::unique_ptr<CUgraphExec_st, Destroy>;
void begin_capture(CUstream_st* stream);
OwnedGraph end_capture(CUstream_st* stream);
void drop_capture(CUstream_st* stream) noexcept;  // ends the capture and discards it
void launch(CUstream_st* stream, CUgraphExec_st* graph);

// Makes the host wait.
void synchronize(CUstream_st* stream);

// Enqueues a copy between the GPU, pinned and pageable memory. Pageable memory is copied before the call returns; a
// copy from the GPU to it makes the host wait.
void copy(CUstream_st* stream, void* to, const void* from, int64_t bytes);

// A named range on the host's timeline in profilers (NVTX).
class Range {
 public:
  explicit Range(const char* name) noexcept;
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace megalith::device
