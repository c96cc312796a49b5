#include "kernels/cross_entropy.h"

#include "kernels/check_args.h"
#include "kernels/ops_cpu.h"

namespace megalith {

namespace {
void expect_loss(const char* op, const Tensor& losses, const Tensor& logits, const Tensor& targets) {
  expect_compute(op, "logits", logits);
  expect_numel(op, "losses", losses, DType::f32, logits.rows());
  expect_numel(op, "targets", targets, DType::i32, logits.rows());
}
}  // namespace

void cross_entropy_forward(Stream& s, Tensor losses, Tensor logits, Tensor targets) {
  expect_loss("cross_entropy_forward", losses, logits, targets);
  const double bytes = static_cast<double>(losses.bytes() + logits.bytes() + targets.bytes());
  s.launch("cross_entropy_forward", {.flops = 3.0 * static_cast<double>(logits.numel()), .bytes = bytes},
           [=] { cpu::cross_entropy_forward(losses, logits, targets); });
}

void cross_entropy_forward_backward(Stream& s, Tensor losses, Tensor logits, Tensor targets, double scale) {
  expect_loss("cross_entropy_forward_backward", losses, logits, targets);
  const double bytes = static_cast<double>(losses.bytes() + 2 * logits.bytes() + targets.bytes());
  s.launch("cross_entropy_forward_backward", {.flops = 6.0 * static_cast<double>(logits.numel()), .bytes = bytes},
           [=] { cpu::cross_entropy_forward_backward(losses, logits, targets, scale); });
}

}  // namespace megalith
