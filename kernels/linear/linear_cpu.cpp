#include "kernels/activation/gelu.h"
#include "kernels/linear/gemm_cpu.h"
#include "kernels/linear/linear.h"
#include "kernels/loops/column_sums_cpu.h"

namespace megalith::cpu {

void run(Queue& queue, const LinearForward& op) { queue.state<Gemm>().run(gemm_call(op)); }

void run(Queue& queue, const LinearBackwardInput& op) { queue.state<Gemm>().run(gemm_call(op)); }

void run(Queue& queue, const LinearGeluForward& op) {
  run(queue, LinearForward{.y = op.h, .x = op.x, .w = op.w, .b = op.b});
  run(queue, GeluForward{.y = op.y, .x = op.h});
}

void run(Queue& queue, const LinearBackwardInputGelu& op) {
  run(queue, LinearBackwardInput{.dx = op.dh, .dy = op.dy, .w = op.w});
  run(queue, GeluBackward{.dx = op.dh, .dy = op.dh, .x = op.h});
}

void run(Queue&, const LinearBackwardBias& op) {
  with_compute_type(op.dy.dtype(), [&](auto tag) {
    using T = decltype(tag);
    column_sums<T>(op.db.data<float>(), op.dy.data<T>(), op.dy.rows(), op.dy.cols());
  });
}

void run(Queue& queue, const LinearBackwardWeight& op) { queue.state<Gemm>().run(gemm_call(op)); }

void run(Queue& queue, const Fp8Product& op) { queue.state<Gemm>().run(gemm_call(op)); }

}  // namespace megalith::cpu
