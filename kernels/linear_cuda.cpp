#include "kernels/gemm_cuda.h"
#include "kernels/ops_cuda.h"

namespace megalith::cuda {

namespace {
Gemm& gemm_of(const Queue& queue) {
  CHECK(queue.gemm, "a queue without a GEMM library cannot run linear layers");
  return *queue.gemm;
}
}  // namespace

void linear_forward(Queue queue, Tensor y, Tensor x, Tensor w, Tensor b) {
  gemm_of(queue).run(queue, {.a = x.raw(),
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

void linear_backward_input(Queue queue, Tensor dx, Tensor dy, Tensor w) {
  gemm_of(queue).run(queue, {.a = dy.raw(),
                             .b = w.raw(),
                             .c = dx.raw(),
                             .M = dy.rows(),
                             .N = w.cols(),
                             .K = dy.cols(),
                             .input = dy.dtype(),
                             .output = dx.dtype()});
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
