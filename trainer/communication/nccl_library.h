// Finds the functions of the NCCL library at run time. For builds with CUDA only.
#pragma once

#include <nccl.h>

#include <string>

namespace megalith {

struct NcclLibrary {
  // Opens the library for the life of the process. Throws Error where it is not found or too old.
  explicit NcclLibrary(const std::string& file);

  // Throws Error, with NCCL's message, unless the result is ncclSuccess.
  void check(ncclResult_t result, const std::string& channel, const char* operation) const;
  std::string version() const;

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
};

}  // namespace megalith
