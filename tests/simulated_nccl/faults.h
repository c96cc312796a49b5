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
  std::atomic<int> nvls_enable = -1, runtime_connect = -1;
};

}  // namespace megalith::simulated_nccl

extern "C" megalith::simulated_nccl::Faults* simulated_nccl_faults();  // found in the library
