// A test orders here what goes wrong in the simulated NCCL, and sees what that was asked for.
#pragma once

#include <atomic>

namespace megalith::simulated_nccl {

struct Faults {
  std::atomic<bool> fail_calls = false;      // with an internal error
  std::atomic<bool> block_calls = false;     // for ever
  std::atomic<bool> report_error = false;    // asynchronously
  std::atomic<bool> hold_transfers = false;  // they do not end
  std::atomic<int> max_ctas = 0;             // of the communicator made last
  std::atomic<int> enqueued = 0;             // transfers and groups of messages
  std::atomic<int> connected = 0;            // pairs of ranks, by their first message
  // NCCL's own variables as its first call read them; -1: not set.
  std::atomic<int> nvls_enable = -1, runtime_connect = -1, cta_policy = -1;
  std::atomic<int> version = 29901;  // which it says it is
  // Symmetric memory (windows.h). Orders: the windows of these numbers, of each communicator, are not made, or begin
  // elsewhere on this rank.
  std::atomic<int> lost_window = -1, shifted_window = -1;
  std::atomic<int> window_errors = 0;    // calls about windows and their memory that were refused
  std::atomic<int> symmetric = 0;        // transfers, on communicators with windows, with all tensors in these
  std::atomic<int> outside_windows = 0;  // and the others there
  std::atomic<int> misplaced = 0;        // transfers whose tensors lay elsewhere on another rank
  std::atomic<int> exchanges = 0;        // calls of ncclAlltoAll
};

}  // namespace megalith::simulated_nccl

extern "C" megalith::simulated_nccl::Faults* simulated_nccl_faults();  // found in the library
