#include "kernels/activation/gelu.h"
#include "kernels/linear/gemm_cuda.h"
#include "kernels/linear/linear.h"

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
  const GemmCall fused = linear_backward_input_gelu_call(dh, dy, w, h);
  if (gemm_of(queue).fuses(fused)) return gemm_of(queue).run(queue, fused);
  linear_backward_input(queue, dh, dy, w);
  gelu_backward(queue, dh, dh, h);
}

namespace {
// Returns the product that also sums dy, into the end of the workspace.
GemmCall with_bias_gradient(const Queue& queue, GemmCall call) {
  call.bias_gradient = queue.workspace;
  call.bias_gradient = static_cast<char*>(queue.workspace) + Gemm::room_for(call);
  return call;
}
}  // namespace

bool sums_bias_gradient(const Queue& queue, Tensor dw, Tensor dy, Tensor x, bool add) {
  return gemm_of(queue).fuses(with_bias_gradient(queue, linear_backward_weight_call(dw, dy, x, add)));
}

void linear_backward_weight(Queue queue, Tensor dw, Tensor db, Tensor dy, Tensor x, bool add) {
  const GemmCall call = linear_backward_weight_call(dw, dy, x, add);
  if (db.empty()) return gemm_of(queue).run(queue, call);
  const GemmCall fused = with_bias_gradient(queue, call);
  gemm_of(queue).run(queue, fused);
  queue.workspace = fused.bias_gradient;  // as one row of partial sums
  finish_bias_gradient(queue, db);
}

}  // namespace megalith::cuda
