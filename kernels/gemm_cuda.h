// GEMM from the GPU's library (cuBLASLt). Which of the library's kernels multiplies is decided once for each shape: by
// the table of this GPU and this version of the library (gemm_table.h), or else by the library, which is asked for its
// first choice; a call then only enqueues. Sums are in f32: without TF32, and split sums are added in a fixed order, so
// that the same call gives the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/base/queue_cuda.h"
#include "kernels/gemm_call.h"
#include "kernels/gemm_table.h"

namespace megalith::cuda {

class Gemm {
 public:
  // For the GPU that is selected, with what is said of it there. Error: a build without CUDA.
  explicit Gemm(const std::vector<GemmTable>& tables = built_in_gemm_tables());
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Whether a call with a GELU or a bias gradient is worth running: the library has a kernel for it, and one that is
  // faster than two, which of bias gradients only a table knows. Where not, run() is not to be called with it.
  bool fuses(const GemmCall& call);

  // Uses the queue's workspace: room_for(call) bytes at its beginning. The rest is the caller's, for its bias gradient.
  void run(const Queue& queue, const GemmCall& call);
  static int64_t room_for(const GemmCall& call);

  // Of the library, as gemm_library_version() reads it.
  int64_t version() const;
  // What a run with such products is told, a line each: whose choices they are, and which of a table are not used, why.
  std::vector<std::string> describe(const GemmCounts& products);

  // For tuning: the library's kernels for a call, its first choice first; none where it has none. Theirs are shape,
  // algorithm, workspace and what.
  std::vector<GemmChoice> candidates(const GemmCall& call, int most);
  // With this one, whatever is decided.
  void run(const Queue& queue, const GemmCall& call, const GemmChoice& candidate);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace megalith::cuda
