#include "kernels/gelu.h"
#include "kernels/gemm_cuda.h"
#include "kernels/linear.h"

namespace megalith::cuda {

namespace {
Gemm& gemm_of(const Queue& queue) {
  CHECK(queue.gemm, "a queue without a GEMM library cannot run linear layers");
  return *queue.gemm;
}
}  // namespace

void linear_forward(Queue queue, Tensor y, Tensor x, Tensor w, Tensor b) {
  gemm_of(queue).run(queue, linear_forward_call(y, x, w, b));
}

void linear_gelu_forward(Queue queue, Tensor y, Tensor h, Tensor x, Tensor w, Tensor b) {
  linear_forward(queue, h, x, w, b);
  gelu_forward(queue, y, h);
}

void linear_backward_input(Queue queue, Tensor dx, Tensor dy, Tensor w) {
  gemm_of(queue).run(queue, linear_backward_input_call(dx, dy, w));
}

void linear_backward_input_gelu(Queue queue, Tensor dh, Tensor dy, Tensor w, Tensor h) {
  GemmCall fused = linear_backward_input_call(dh, dy, w);
  fused.gelu_input = h.raw();
  if (gemm_of(queue).fuses(fused)) return gemm_of(queue).run(queue, fused);
  linear_backward_input(queue, dh, dy, w);
  gelu_backward(queue, dh, dh, h);
}

void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add) {
  gemm_of(queue).run(queue, linear_backward_weight_call(dw, dy, x, add));
  if (!db.empty()) add_column_sums(queue, db, dy);
}

}  // namespace megalith::cuda
