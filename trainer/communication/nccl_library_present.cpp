#include <dlfcn.h>

#include <cstring>

#include "kernels/system/check.h"
#include "trainer/communication/nccl_library.h"

namespace megalith {

NcclLibrary::NcclLibrary(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(
      handle,
      "NCCL, which carries tensors between GPUs, cannot be opened: {}; install it, add its folder to LD_LIBRARY_PATH, "
      "or use communication.backend=mpi (slow)",
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
}

void NcclLibrary::check(ncclResult_t result, const std::string& channel, const char* operation) const {
  if (result == ncclSuccess) return;
  const std::string detail = last_error(nullptr);
  FAIL("{}: NCCL's {} failed: {}{}{}; NCCL_DEBUG=WARN shows more", channel, operation, error_string(result),
       detail.empty() ? "" : ": ", detail);
}

std::string NcclLibrary::version() const {
  int v = 0;
  check(get_version(&v), "NCCL", "ncclGetVersion");
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

}  // namespace megalith
