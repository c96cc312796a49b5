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

void run(Queue queue, const LinearForward& op) { gemm_of(queue).run(queue, gemm_call(op)); }

void run(Queue queue, const LinearGeluForward& op) {
  run(queue, LinearForward{.y = op.h, .x = op.x, .w = op.w, .b = op.b});
  run(queue, GeluForward{.y = op.y, .x = op.h});
}

void run(Queue queue, const LinearBackwardInput& op) { gemm_of(queue).run(queue, gemm_call(op)); }

void run(Queue queue, const Fp8Product& op) { gemm_of(queue).run(queue, gemm_call(op)); }

void run(Queue queue, const LinearBackwardInputGelu& op) {
  const GemmCall fused = gemm_call(op);
  if (gemm_of(queue).fuses(fused)) return gemm_of(queue).run(queue, fused);
  run(queue, LinearBackwardInput{.dx = op.dh, .dy = op.dy, .w = op.w});
  run(queue, GeluBackward{.dx = op.dh, .dy = op.dh, .x = op.h});
}

namespace {
// Returns the product that also sums dy, into the end of the workspace.
GemmCall with_bias_gradient(const Queue& queue, GemmCall call) {
  call.bias_gradient = queue.workspace;
  call.bias_gradient = static_cast<char*>(queue.workspace) + Gemm::room_for(call);
  return call;
}
}  // namespace

bool sums_bias_gradient(const Queue& queue, const LinearBackwardWeight& op) {
  return gemm_of(queue).fuses(with_bias_gradient(queue, gemm_call(op)));
}

void run(Queue queue, const LinearBackwardWeight& op) {
  const GemmCall call = gemm_call(op);
  if (op.db.empty()) return gemm_of(queue).run(queue, call);
  const GemmCall fused = with_bias_gradient(queue, call);
  gemm_of(queue).run(queue, fused);
  queue.workspace = fused.bias_gradient;  // one row of partial sums
  finish_bias_gradient(queue, op.db);
}

}  // namespace megalith::cuda
