#include "kernels/loss/cross_entropy.h"

#include <utility>

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
// Counts the logits of held tokens: padding costs nothing until its gradient is written.
double held(const Tensor& logits, const VocabularyPart& part) {
  return static_cast<double>(logits.rows() * part.count);
}
double held_bytes(const Tensor& logits, const VocabularyPart& part) {
  return held(logits, part) * static_cast<double>(size_of(logits.dtype()));
}

void expect_logits(const char* op, const Tensor& logits, const Tensor& targets, const VocabularyPart& part) {
  expect_compute(op, "logits", logits);
  expect_part(op, part, "logits", logits.cols());
  expect_numel(op, "targets", targets, DType::i32, logits.rows());
}

void expect_scale(const char* op, const GradientScale& scale) {
  for (const auto& [name, factor] : {std::pair{"scale", scale.in_memory}, {"share", scale.also_in_memory}})
    if (!factor.empty()) expect_numel(op, name, factor, DType::f64, 1);
}

void expect_whole(const char* op, const Tensor& losses, const Tensor& logits, const Tensor& targets,
                  const VocabularyPart& part) {
  expect_logits(op, logits, targets, part);
  expect_numel(op, "losses", losses, DType::f32, logits.rows());
  CHECK(part.whole(), "{}: logits of {} tokens of {}; a divided vocabulary goes through softmax_part", op, part.count,
        part.total);
}
}  // namespace

void cross_entropy_forward(Stream& s, Tensor losses, Tensor logits, Tensor targets, VocabularyPart part) {
  expect_whole("cross_entropy_forward", losses, logits, targets, part);
  s.launch(
      "cross_entropy_forward", {3 * held(logits, part), held_bytes(logits, part) + bytes_of({losses, targets})},
      {losses}, [=] { cpu::cross_entropy_forward(losses, logits, targets, part); },
      [=](auto queue) { cuda::cross_entropy_forward(queue, losses, logits, targets, part); });
}

void cross_entropy_forward_backward(Stream& s, Tensor losses, Tensor logits, Tensor targets, VocabularyPart part,
                                    const GradientScale& scale) {
  expect_whole("cross_entropy_forward_backward", losses, logits, targets, part);
  expect_scale("cross_entropy_forward_backward", scale);
  const double bytes = held_bytes(logits, part) + bytes_of({losses, logits, targets});
  s.launch(
      "cross_entropy_forward_backward", {.flops = 6 * held(logits, part), .bytes = bytes}, {losses, logits},
      [=] { cpu::cross_entropy_forward_backward(losses, logits, targets, part, scale); },
      [=](auto queue) { cuda::cross_entropy_forward_backward(queue, losses, logits, targets, part, scale); });
}

void softmax_part(Stream& s, Tensor stats, Tensor logits, Tensor targets, VocabularyPart part) {
  const char* op = "softmax_part";
  expect_logits(op, logits, targets, part);
  expect(op, "stats", stats, DType::f32, {3, logits.rows()});
  s.launch(
      op, {3 * held(logits, part), held_bytes(logits, part) + bytes_of({stats, targets})}, {stats},
      [=] { cpu::softmax_part(stats, logits, targets, part); },
      [=](auto queue) { cuda::softmax_part(queue, stats, logits, targets, part); });
}

void merge_softmax(Stream& s, Tensor stats, Tensor max) {
  expect("merge_softmax", "stats", stats, DType::f32, {3, max.numel()});
  expect_dtype("merge_softmax", "max", max, DType::f32);
  s.launch(
      "merge_softmax", {.flops = 3 * numel_of(max), .bytes = 5 * bytes_of(max)}, {stats},
      [=] { cpu::merge_softmax(stats, max); }, [=](auto queue) { cuda::merge_softmax(queue, stats, max); });
}

void cross_entropy_loss(Stream& s, Tensor losses, Tensor stats, Tensor targets) {
  const char* op = "cross_entropy_loss";
  expect(op, "stats", stats, DType::f32, {3, losses.numel()});
  expect_dtype(op, "losses", losses, DType::f32);
  expect_numel(op, "targets", targets, DType::i32, losses.numel());
  s.launch(
      op, {3 * numel_of(losses), bytes_of({losses, stats, targets})}, {losses},
      [=] { cpu::cross_entropy_loss(losses, stats, targets); },
      [=](auto queue) { cuda::cross_entropy_loss(queue, losses, stats, targets); });
}

void cross_entropy_gradient(Stream& s, Tensor logits, Tensor stats, Tensor targets, VocabularyPart part,
                            const GradientScale& scale) {
  const char* op = "cross_entropy_gradient";
  expect_scale(op, scale);
  expect_logits(op, logits, targets, part);
  expect(op, "stats", stats, DType::f32, {3, logits.rows()});
  const double bytes = held_bytes(logits, part) + bytes_of({stats, logits, targets});
  s.launch(
      op, {.flops = 3 * held(logits, part), .bytes = bytes}, {logits},
      [=] { cpu::cross_entropy_gradient(logits, stats, targets, part, scale); },
      [=](auto queue) { cuda::cross_entropy_gradient(queue, logits, stats, targets, part, scale); });
}

}  // namespace megalith
