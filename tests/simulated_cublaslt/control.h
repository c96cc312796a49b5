// A test orders here what the simulated cuBLASLt does, and sees what that was asked for.
#pragma once

#include <atomic>
#include <cstddef>

namespace megalith::simulated_cublaslt {

struct Control {
  std::atomic<size_t> version = 0;          // that it tells; 0: its header's
  std::atomic<bool> no_heuristic = false;   // it knows no algorithm for anything
  std::atomic<bool> no_check = false;       // no algorithm that it is shown passes
  std::atomic<size_t> more_workspace = 0;   // bytes that every algorithm needs on top
  std::atomic<int> asked = 0, checked = 0;  // calls for algorithms, and of them
  std::atomic<int> enqueued = 0;            // products
  std::atomic<int> last_algorithm = 0;      // of the last product: the number of its kernel,
  std::atomic<int> last_splits = 0;         // its parts,
  std::atomic<int> last_epilogue = 0;       // and what came behind
};

}  // namespace megalith::simulated_cublaslt

extern "C" megalith::simulated_cublaslt::Control* simulated_cublaslt_control();  // found in the library
