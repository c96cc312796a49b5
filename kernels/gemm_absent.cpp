// A build without CUDA.
#include "kernels/base/check.h"
#include "kernels/gemm_cuda.h"

namespace megalith::cuda {

struct Gemm::Library {};
Gemm::Gemm() { FAIL("this build has no CUDA; configure with: cmake --preset cuda"); }
Gemm::~Gemm() = default;
bool Gemm::fuses(const GemmCall&) { return false; }
void Gemm::run(const Queue&, const GemmCall&) {}

}  // namespace megalith::cuda
