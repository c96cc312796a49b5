#include "kernels/gelu.h"
#include "kernels/gemm_cuda.h"
#include "kernels/linear.h"

namespace megalith::cuda {

namespace {
Gemm& gemm_of(const Queue& queue) {
  CHECK(queue.gemm, "a queue without a GEMM library cannot run linear layers");
  return *queue.gemm;
}

GemmCall forward_call(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b) {
  return {.a = x.raw(),
          .b = w.raw(),
          .c = y.raw(),
          .bias = b.empty() ? nullptr : b.raw(),
          .M = x.rows(),
          .N = w.rows(),
          .K = x.cols(),
          .b_transposed = true,
          .input = x.dtype(),
          .output = y.dtype()};
}

GemmCall backward_input_call(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  return {.a = dy.raw(),
          .b = w.raw(),
          .c = dx.raw(),
          .M = dy.rows(),
          .N = w.cols(),
          .K = dy.cols(),
          .input = dy.dtype(),
          .output = dx.dtype()};
}
}  // namespace

void linear_forward(Queue queue, Tensor y, Tensor x, Tensor w, Tensor b) {
  gemm_of(queue).run(queue, forward_call(y, x, w, b));
}

void linear_gelu_forward(Queue queue, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b) {
  GemmCall fused = forward_call(y, x, w, b);
  fused.gelu = Gelu::forward;
  fused.gelu_input = h.raw();
  if (gemm_of(queue).fuses(fused)) return gemm_of(queue).run(queue, fused);
  linear_forward(queue, h, x, w, b);
  gelu_forward(queue, y, h);
}

void linear_backward_input(Queue queue, Tensor dx, Tensor dy, Tensor w) {
  gemm_of(queue).run(queue, backward_input_call(dx, dy, w));
}

void linear_backward_input_gelu(Queue queue, Tensor dh, Tensor dy, Tensor w, Tensor h) {
  GemmCall fused = backward_input_call(dh, dy, w);
  fused.gelu = Gelu::backward;
  fused.gelu_input = h.raw();
  if (gemm_of(queue).fuses(fused)) return gemm_of(queue).run(queue, fused);
  linear_backward_input(queue, dh, dy, w);
  gelu_backward(queue, dh, dh, h);
}

void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x) {
  gemm_of(queue).run(queue, {.a = dy.raw(),
                             .b = x.raw(),
                             .c = dw.raw(),
                             .M = dy.cols(),
                             .N = x.cols(),
                             .K = dy.rows(),
                             .a_transposed = true,
                             .accumulate = true,
                             .input = dy.dtype(),
                             .output = DType::f32});
  if (!db.empty()) add_column_sums(queue, db, dy);
}

}  // namespace megalith::cuda
