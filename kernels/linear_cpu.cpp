#include "kernels/column_sums_cpu.h"
#include "kernels/gelu.h"
#include "kernels/gemm_cpu.h"
#include "kernels/linear.h"

namespace megalith::cpu {

void linear_forward(Gemm& gemm, Tensor y, Tensor x, Tensor w, Tensor b) {
  gemm.run({.a = x.raw(),
            .b = w.raw(),
            .c = y.raw(),
            .bias = b.empty() ? nullptr : b.raw(),
            .M = x.rows(),
            .N = w.rows(),
            .K = x.cols(),
            .b_transposed = true,
            .input = x.dtype(),
            .output = y.dtype()});
}

void linear_backward_input(Gemm& gemm, Tensor dx, Tensor dy, Tensor w) {
  gemm.run({.a = dy.raw(),
            .b = w.raw(),
            .c = dx.raw(),
            .M = dy.rows(),
            .N = w.cols(),
            .K = dy.cols(),
            .input = dy.dtype(),
            .output = dx.dtype()});
}

void linear_gelu_forward(Gemm& gemm, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b) {
  linear_forward(gemm, h, x, w, b);
  gelu_forward(y, h);
}

void linear_backward_input_gelu(Gemm& gemm, Tensor dh, Tensor dy, Tensor w, Tensor h) {
  linear_backward_input(gemm, dh, dy, w);
  gelu_backward(dh, dh, h);
}

void linear_backward_weight(Gemm& gemm, Tensor dw, Tensor db, Tensor dy, Tensor x) {
  gemm.run({.a = dy.raw(),
            .b = x.raw(),
            .c = dw.raw(),
            .M = dy.cols(),
            .N = x.cols(),
            .K = dy.rows(),
            .a_transposed = true,
            .accumulate = true,
            .input = dy.dtype(),
            .output = DType::f32});
  if (db.empty()) return;
  with_compute_type(dy.dtype(), [&](auto tag) {
    using T = decltype(tag);
    column_sums<T>(db.data<float>(), dy.data<T>(), dy.rows(), dy.cols());
  });
}

}  // namespace megalith::cpu
