// Finds the functions of the NCCL library at run time. For builds with CUDA only.
#pragma once

#include <nccl.h>

#include <string>

#include "configs/config.h"
#include "kernels/stream/device.h"

namespace megalith {

struct NcclLibrary {
  // Opens the library for the life of the process. Throws Error if it is not found or too old.
  explicit NcclLibrary(const std::string& file);

  // Throws Error, with NCCL's message, unless the result is ncclSuccess.
  void check(ncclResult_t result, const std::string& channel, const char* operation) const;
  int version_code() const;
  std::string version() const;

  // Throws Error, with the remedy, if the library lacks a function that the option needs.
  void check_has(SymmetricMemory wanted) const;
  // Returns memory of the selected GPU that can be symmetric. `what` is for the message. Needs check_has().
  device::Memory allocate(int64_t bytes, const std::string& what) const;

  std::string file;

  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommCount) count;
  decltype(&ncclCommUserRank) user_rank;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclReduce) reduce;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;

  // Null if the library lacks them. Declared here, since older headers lack them: memory and windows (ncclWindow_t, a
  // pointer) exist since 2.27, the exchange since 2.28.
  ncclResult_t (*allocate_memory)(void** memory, size_t bytes);
  ncclResult_t (*free_memory)(void* memory);
  ncclResult_t (*register_window)(ncclComm_t comm, void* memory, size_t bytes, void** window, int flags);
  ncclResult_t (*deregister_window)(ncclComm_t comm, void* window);
  ncclResult_t (*all_to_all)(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                             cudaStream_t stream);
  static constexpr int symmetric_window = 1;  // NCCL_WIN_COLL_SYMMETRIC
};

}  // namespace megalith
