// Kernels whose calls stay calls: the machine sees their accesses as well.
#include "kernels/loops/device_cuda.h"
#include "tests/simt/faults.h"

namespace megalith::test {

using namespace cuda;

namespace {
__global__ void narrow(float16* y, const float* x) {
  const unsigned i = threadIdx.x;
  y[i] = to<float16>(x[i]);
}
__global__ void change(bfloat16* y, const float16* x) {
  const unsigned i = threadIdx.x;
  y[i] = convert<bfloat16>(x[i]);
}
__global__ void widen(float* y, const bfloat16* x) {
  const unsigned i = threadIdx.x;
  y[i] = to_float(x[i]);
}
}  // namespace

void run_unoptimized(Tensor to, Tensor from) {
  const Launch one{"unoptimized", 1, 32};
  switch (from.dtype()) {
    case DType::f32: return launch({}, one, narrow, to.data<float16>(), from.data<float>());
    case DType::f16: return launch({}, one, change, to.data<bfloat16>(), from.data<float16>());
    default: return launch({}, one, widen, to.data<float>(), from.data<bfloat16>());
  }
}

}  // namespace megalith::test
