#include "kernels/activation/gelu.h"
#include "kernels/linear/gemm_cpu.h"
#include "kernels/linear/linear.h"
#include "kernels/loops/column_sums_cpu.h"

namespace megalith::cpu {

void linear_forward(Gemm& gemm, Tensor y, Tensor x, Tensor w, Tensor b) { gemm.run(linear_forward_call(y, x, w, b)); }

void linear_backward_input(Gemm& gemm, Tensor dx, Tensor dy, Tensor w) {
  gemm.run(linear_backward_input_call(dx, dy, w));
}

void linear_gelu_forward(Gemm& gemm, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b) {
  linear_forward(gemm, h, x, w, b);
  gelu_forward(y, h);
}

void linear_backward_input_gelu(Gemm& gemm, Tensor dh, Tensor dy, Tensor w, Tensor h) {
  linear_backward_input(gemm, dh, dy, w);
  gelu_backward(dh, dh, h);
}

void linear_backward_bias(Tensor db, Tensor dy) {
  with_compute_type(dy.dtype(), [&](auto tag) {
    using T = decltype(tag);
    column_sums<T>(db.data<float>(), dy.data<T>(), dy.rows(), dy.cols());
  });
}

void linear_backward_weight(Gemm& gemm, Tensor dw, Tensor dy, Tensor x, bool add) {
  gemm.run(linear_backward_weight_call(dw, dy, x, add));
}

}  // namespace megalith::cpu
