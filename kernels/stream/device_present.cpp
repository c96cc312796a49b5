// The GPU of this process, through the CUDA runtime.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/resource.h>

#include <cstdlib>
#include <exception>

#include "kernels/stream/device.h"
#include "kernels/stream/device_code.h"
#include "kernels/system/check.h"
#include "kernels/system/units.h"

namespace megalith::device {

namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }
int driver_version() {
  int version = 0;  // stays 0 without a driver
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

const char* remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "; is another process on this GPU? Use a smaller batch.microbatch_size or more GPUs";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice: return "; does nvidia-smi show it, and does CUDA_VISIBLE_DEVICES name it?";
    case cudaErrorInsufficientDriver: return "; install a newer driver, or build with the toolkit of this one";
    case cudaErrorNoKernelImageForDevice:
      return "; this build has no code for this GPU: configure with -DCMAKE_CUDA_ARCHITECTURES=";
    case cudaErrorDevicesUnavailable: return "; the GPU is in exclusive use: end the other process";
    case cudaErrorSystemNotReady:
      return "; the GPUs' NVLink switches are not set up: start nvidia-fabricmanager, of the driver's version, or wait "
             "until it is up (systemctl status nvidia-fabricmanager)";
    case cudaErrorSystemDriverMismatch:
      return "; the driver's libraries and its kernel module have different versions: restart the machine after an "
             "update of the driver, and remove other versions of libcuda.so from the container or LD_LIBRARY_PATH";
    case cudaErrorCompatNotSupportedOnDevice:
      return "; this GPU does not support a libcuda.so newer than its driver: remove CUDA's compat folder from "
             "LD_LIBRARY_PATH, and install a newer driver or build with the driver's toolkit";
    case cudaErrorECCUncorrectable: return "; the GPU's memory is damaged: use another GPU";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "; an earlier kernel failed: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer show which";
    default: return "";
  }
}

void check(cudaError_t error, const std::string& call) {
  if (error == cudaSuccess) return;
  int index = -1;
  cudaGetDevice(&index);
  FAIL("{} failed{}: {} ({}){}", call, index < 0 ? "" : fmt::format(" on GPU {}", index), cudaGetErrorString(error),
       cudaGetErrorName(error), remedy(error));
}
#define CUDA_CHECK(call) check(call, #call)

// Most drivers do not count pinned memory against this limit; where one does, its error does not say so.
std::string limit_of_locked_memory() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format(
      ", and this process may lock {} KiB of memory: ulimit -l unlimited, or with Docker --ulimit "
      "memlock=-1, removes that limit",
      limit.rlim_cur / 1024);
}

template <cudaError_t (*give_back)(void*)>
Memory owned(void* p) {
  return Memory(p, {[](void* memory) {
                  if (std::uncaught_exceptions() == 0) give_back(memory);
                }});
}

}  // namespace

bool in_build() { return true; }

void expect_waiting_kernels() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_MODULE_DATA_LOADING", "EAGER", 0);
}

int count() {
  int n = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  if (error == cudaErrorNoDevice) return 0;
  if (error == cudaErrorInsufficientDriver) {
    const int driver = driver_version();
    if (driver == 0) return 0;
    FAIL(
        "the NVIDIA driver of this machine is too old: it supports CUDA {}, this build needs CUDA {}; install a newer "
        "driver, build with the older toolkit, or use run.device=cpu",
        version_text(driver), version_text(CUDART_VERSION));
  }
  check(error, "cudaGetDeviceCount");
  return n;
}

std::string unusable(int index) {
  cudaDeviceProp p;
  CUDA_CHECK(cudaGetDeviceProperties(&p, index));
  const std::string gpu = fmt::format("GPU {} ({}) has compute capability {}.{}", index, p.name, p.major, p.minor);
  if (p.major < 8) return gpu + "; the kernels need 8.0 (A100) or later: use another GPU, or run.device=cpu";
  CUDA_CHECK(cudaSetDevice(index));
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel_of_build());
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction) {
    check(error, "cudaFuncGetAttributes");
    return "";
  }
  cudaGetLastError();  // reported here; it must not show in the next call
  return fmt::format(
      "{}; this build has code only for {}: configure with -DCMAKE_CUDA_ARCHITECTURES={}{}, or use run.device=cpu", gpu,
      architectures(), p.major, p.minor);
}

void select(int index) {
  CUDA_CHECK(cudaSetDevice(index));
  CUDA_CHECK(cudaFree(nullptr));  // creates the context, so that errors of the GPU show here
}

Properties properties() {
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  cudaDeviceProp p;
  CUDA_CHECK(cudaGetDeviceProperties(&p, index));
  std::string id;
  for (char byte : p.uuid.bytes) id += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  size_t free = 0, memory = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &memory));
  return {.index = index,
          .name = p.name,
          .major = p.major,
          .minor = p.minor,
          .processors = p.multiProcessorCount,
          .memory = static_cast<int64_t>(memory),
          .free = static_cast<int64_t>(free),
          .cache = p.l2CacheSize,
          .shared_memory = static_cast<int64_t>(p.sharedMemPerBlockOptin),
          .id = id,
          .driver = version_text(driver_version()),
          .runtime = version_text(CUDART_VERSION)};
}

Link link(int from, int to) {
  int reaches = 0, has_atomics = 0;
  CUDA_CHECK(cudaDeviceCanAccessPeer(&reaches, from, to));
  if (!reaches) return Link::none;
  CUDA_CHECK(cudaDeviceGetP2PAttribute(&has_atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
  return has_atomics ? Link::nvlink : Link::peer;
}

Memory allocate(int64_t bytes, const std::string& what) {
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // reported here; it must not show in the next call
    const Properties gpu = properties();
    FAIL("cannot allocate {:.2f} GiB for {} on GPU {} ({}): {:.2f} of {:.2f} GiB are free{}", gib(bytes), what,
         gpu.index, gpu.name, gib(gpu.free), gib(gpu.memory), remedy(error));
  }
  check(error, fmt::format("cudaMalloc of {} bytes for {}", bytes, what));
  return owned<cudaFree>(p);
}

Memory allocate_pinned(int64_t bytes, const std::string& what) {
  void* p = nullptr;
  const cudaError_t error = cudaMallocHost(&p, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    FAIL("cannot allocate {:.2f} GiB of pinned host memory for {}{}; use fewer ranks a node, or nodes with more memory",
         gib(bytes), what, limit_of_locked_memory());
  }
  check(error, fmt::format("cudaMallocHost of {} bytes for {}", bytes, what));
  return owned<cudaFreeHost>(p);
}

void Destroy::operator()(CUstream_st* stream) const noexcept { cudaStreamDestroy(stream); }
void Destroy::operator()(CUevent_st* event) const noexcept { cudaEventDestroy(event); }
void Destroy::operator()(CUgraphExec_st* graph) const noexcept { cudaGraphExecDestroy(graph); }

OwnedStream make_stream(bool urgent) {
  int least = 0, greatest = 0;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least));
  return OwnedStream(stream);
}

OwnedEvent make_event() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return OwnedEvent(event);
}

OwnedEvent make_timed_event() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreate(&event));
  return OwnedEvent(event);
}

void record(CUevent_st* event, CUstream_st* stream) { CUDA_CHECK(cudaEventRecord(event, stream)); }
void wait(CUstream_st* stream, CUevent_st* event) { CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0)); }

bool passed(CUevent_st* event) {
  const cudaError_t error = cudaEventQuery(event);
  if (error == cudaErrorNotReady) return false;
  check(error, "cudaEventQuery");
  return true;
}

double seconds_between(CUevent_st* begin, CUevent_st* end) {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  return static_cast<double>(milliseconds) / 1e3;
}

// Only this thread is forbidden calls that break a capture: others may save a checkpoint meanwhile.
void begin_capture(CUstream_st* stream) {
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

OwnedGraph end_capture(CUstream_st* stream) {
  cudaGraph_t captured = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(stream, &captured));
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, captured, 0);
  cudaGraphDestroy(captured);
  check(error, "cudaGraphInstantiate");
  OwnedGraph owned(graph);
  CUDA_CHECK(cudaGraphUpload(graph, stream));
  return owned;
}

void drop_capture(CUstream_st* stream) noexcept {
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(stream, &captured);
  if (captured) cudaGraphDestroy(captured);
  cudaGetLastError();  // the caller is reporting an error already
}

void launch(CUstream_st* stream, CUgraphExec_st* graph) { CUDA_CHECK(cudaGraphLaunch(graph, stream)); }

void synchronize(CUstream_st* stream) { CUDA_CHECK(cudaStreamSynchronize(stream)); }

void copy(CUstream_st* stream, void* to, const void* from, int64_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream));
}

Range::Range(const char* name) noexcept { nvtxRangePushA(name); }
Range::~Range() { nvtxRangePop(); }

}  // namespace megalith::device
