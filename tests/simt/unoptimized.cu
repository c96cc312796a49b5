// Kernels that are compiled without optimisation, where calls stay calls: the machine sees their accesses as well.
#include "kernels/device_cuda.h"
#include "tests/simt/faults.h"

namespace megalith::test {

using namespace cuda;

namespace {
template <class To, class From>
__global__ void conversion(To* y, const From* x) {
  y[threadIdx.x] = convert<To>(x[threadIdx.x]);
}
__global__ void narrowing(float16* y, const float* x) { y[threadIdx.x] = to<float16>(x[threadIdx.x]); }
}  // namespace

void run_unoptimized(Tensor y, Tensor f16, Tensor bf16, Tensor x) {
  const Launch one{"unoptimized", 1, 32};
  launch({}, one, narrowing, f16.data<float16>(), x.data<float>());
  launch({}, one, conversion<bfloat16, float16>, bf16.data<bfloat16>(), f16.data<float16>());
  launch({}, one, conversion<float, bfloat16>, y.data<float>(), bf16.data<bfloat16>());
}

}  // namespace megalith::test
