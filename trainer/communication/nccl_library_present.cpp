#include <dlfcn.h>

#include <cstring>
#include <exception>

#include "configs/choices.h"
#include "kernels/system/check.h"
#include "kernels/system/units.h"
#include "trainer/communication/nccl_library.h"

namespace megalith {

namespace {
std::string version_text(int v) { return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100); }
}  // namespace

NcclLibrary::NcclLibrary(const std::string& file_name) : file(file_name) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(handle,
        "NCCL, the transport between GPUs, cannot be opened: {}; install it, add its folder to LD_LIBRARY_PATH, or use "
        "communication.backend=mpi (slow)",
        dlerror());
  const auto find = [&](auto& function, const char* name) {
    void* address = dlsym(handle, name);
    CHECK(address,
          "{} has no {}, which NCCL has since 2.18; install a newer one, or use communication.backend=mpi (slow)", file,
          name);
    std::memcpy(&function, &address, sizeof(function));
  };
  find(get_version, "ncclGetVersion");
  find(get_unique_id, "ncclGetUniqueId");
  find(init_rank, "ncclCommInitRankConfig");
  find(split, "ncclCommSplit");
  find(destroy, "ncclCommDestroy");
  find(async_error, "ncclCommGetAsyncError");
  find(count, "ncclCommCount");
  find(user_rank, "ncclCommUserRank");
  find(error_string, "ncclGetErrorString");
  find(last_error, "ncclGetLastError");
  find(all_gather, "ncclAllGather");
  find(reduce_scatter, "ncclReduceScatter");
  find(all_reduce, "ncclAllReduce");
  find(broadcast, "ncclBroadcast");
  find(reduce, "ncclReduce");
  find(group_start, "ncclGroupStart");
  find(group_end, "ncclGroupEnd");
  find(send, "ncclSend");
  find(recv, "ncclRecv");
  const auto find_newer = [&](auto& function, const char* newer) {
    void* address = dlsym(handle, newer);
    std::memcpy(&function, &address, sizeof(function));
  };
  find_newer(allocate_memory, "ncclMemAlloc");
  find_newer(free_memory, "ncclMemFree");
  find_newer(register_window, "ncclCommWindowRegister");
  find_newer(deregister_window, "ncclCommWindowDeregister");
  find_newer(all_to_all, "ncclAlltoAll");
}

void NcclLibrary::check(ncclResult_t result, const std::string& channel, const char* operation) const {
  if (result == ncclSuccess) return;
  const std::string detail = last_error(nullptr);
  FAIL("{}: NCCL's {} failed: {}{}{}; NCCL_DEBUG=WARN shows more", channel, operation, error_string(result),
       detail.empty() ? "" : ": ", detail);
}

int NcclLibrary::version_code() const {
  int code = 0;
  check(get_version(&code), "NCCL", "ncclGetVersion");
  return code;
}
std::string NcclLibrary::version() const { return version_text(version_code()); }

void NcclLibrary::check_has(SymmetricMemory wanted) const {
  if (wanted == SymmetricMemory::off) return;
  const bool copies = wanted == SymmetricMemory::copy_engines;
  const int needed = copies ? 22800 : 22700, code = version_code();
  const bool has_functions =
      allocate_memory && free_memory && register_window && deregister_window && (!copies || all_to_all);
  CHECK(code >= needed && has_functions,
        "communication.symmetric_memory = {} needs NCCL {} or later, but {} is {}; install a newer one, add its folder "
        "to LD_LIBRARY_PATH, or set communication.symmetric_memory = off",
        to_string(wanted), version_text(needed), file, version_text(code));
}

device::Memory NcclLibrary::allocate(int64_t bytes, const std::string& what) const {
  static decltype(free_memory) give_back = nullptr;  // the library is open for the life of the process
  give_back = free_memory;
  void* memory = nullptr;
  const ncclResult_t result = allocate_memory(&memory, static_cast<size_t>(bytes));
  if (result != ncclSuccess) {
    const device::Properties gpu = device::properties();
    FAIL(
        "NCCL cannot allocate {:.2f} GiB of symmetric memory for {} on GPU {} ({}), of which {:.2f} of {:.2f} GiB are "
        "free: {}; use a smaller batch.microbatch_size or more GPUs, or set communication.symmetric_memory = off",
        gib(bytes), what, gpu.index, gpu.name, gib(gpu.free), gib(gpu.memory), error_string(result));
  }
  return device::Memory(memory, {[](void* p) {
                          if (std::uncaught_exceptions() == 0) give_back(p);
                        }});
}

}  // namespace megalith
