// GEMM from the GPU's library (cuBLASLt). The kernel for a shape is chosen once: by the table of this GPU and library
// version (gemm_table.h), or else by the library's heuristic; a call then only enqueues. Sums are in f32: without TF32,
// and split sums are added in a fixed order, so the same call gives the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/linear/gemm_call.h"
#include "kernels/linear/gemm_table.h"
#include "kernels/stream/queue_cuda.h"

namespace megalith::cuda {

class Gemm {
 public:
  // Uses the tables' entries for the selected GPU. Error: a build without CUDA.
  explicit Gemm(const std::vector<GemmTable>& tables = built_in_gemm_tables());
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Returns whether a call with a GELU or a bias gradient is worth fusing: the library has a kernel for it that is
  // faster than two ops, which for bias gradients only a table knows. If not, run() must not be called with it.
  bool fuses(const GemmCall& call);

  // Uses the first room_for(call) bytes of the queue's workspace. The rest is the caller's, for its bias gradient.
  void run(const Queue& queue, const GemmCall& call);
  static int64_t room_for(const GemmCall& call);

  // The library's version, as gemm_library_version() reads it.
  int64_t version() const;
  // Returns log lines on a run with these products: where choices come from, and which table entries are unused and
  // why.
  std::vector<std::string> describe(const GemmCounts& products);

  // For tuning: the library's kernels for a call, best first, with shape, algorithm, workspace and description.
  std::vector<GemmChoice> candidates(const GemmCall& call, int most);
  // Runs this kernel instead of the chosen one.
  void run(const Queue& queue, const GemmCall& call, const GemmChoice& candidate);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace megalith::cuda
