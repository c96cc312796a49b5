// The GEMM library of a build without CUDA.
#include "kernels/linear/gemm_cuda.h"
#include "kernels/system/check.h"

namespace megalith::cuda {

struct Gemm::Library {};
Gemm::Gemm(const std::vector<GemmTable>&) { FAIL("this build has no CUDA; configure with: cmake --preset cuda"); }
Gemm::~Gemm() = default;
bool Gemm::fuses(const GemmCall&) { return false; }
void Gemm::run(const Queue&, const GemmCall&) {}
int64_t Gemm::room_for(const GemmCall&) { return 0; }
int64_t Gemm::version() const { return 0; }
std::vector<std::string> Gemm::describe(const GemmCounts&) { return {}; }
std::vector<GemmChoice> Gemm::candidates(const GemmCall&, int) { return {}; }
void Gemm::run(const Queue&, const GemmCall&, const GemmChoice&) {}

}  // namespace megalith::cuda
