// The symmetric windows of a simulated communicator. NCCL believes what it is told of them; here each untruth is found:
// windows that overlap or are not of its own memory, that differ in size or order between ranks, that are given back
// while a transfer is under way or not at all, and transfers whose tensors lie at other offsets on other ranks.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/simulated_nccl/nccl.h"

namespace megalith::simulated_nccl {

// Where a transfer reads and writes: the number of the window, and the offset in it. In no window: -1 each.
using Placement = std::array<int64_t, 4>;

class Windows {
 public:
  Windows();
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  // Collective over `ranks`; null: alone.
  ncclResult_t add(MPI_Comm ranks, const void* memory, size_t bytes, int flags, ncclWindow_t* window);
  ncclResult_t remove(ncclWindow_t window);
  bool any() const { return !windows_.empty(); }
  bool overlap(const void* memory, size_t bytes) const;

  // Returns where this rank's tensors lie, where there are windows, and counts the transfer (faults.h). A null address
  // stands for none.
  std::optional<Placement> of(const void* in, size_t in_bytes, const void* out, size_t out_bytes) const;

 private:
  struct Window {
    const char* begin;
    size_t bytes;
    int64_t number;
  };
  void find(const void* memory, size_t bytes, int64_t* window_and_offset) const;

  std::vector<std::unique_ptr<Window>> windows_;
  int64_t added_ = 0;
};

}  // namespace megalith::simulated_nccl
