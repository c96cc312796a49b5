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

template <class Op>
void expect_logits(const Op& op) {
  expect_compute(op.name, "logits", op.logits);
  expect_part(op.name, op.part, "logits", op.logits.cols());
  expect_numel(op.name, "targets", op.targets, DType::i32, op.logits.rows());
}

void expect_scale(const char* op, const GradientScale& scale) {
  for (const auto& [name, factor] : {std::pair{"scale", scale.in_memory}, {"share", scale.also_in_memory}})
    if (!factor.empty()) expect_numel(op, name, factor, DType::f64, 1);
}

template <class Op>
void expect_whole(const Op& op) {
  expect_logits(op);
  expect_numel(op.name, "losses", op.losses, DType::f32, op.logits.rows());
  CHECK(op.part.whole(), "{}: logits of {} tokens of {}; a divided vocabulary goes through softmax_part", op.name,
        op.part.count, op.part.total);
}
}  // namespace

void launch(Stream& s, const CrossEntropyForward& op) {
  expect_whole(op);
  s.launch(op, {3 * held(op.logits, op.part), held_bytes(op.logits, op.part) + bytes_of({op.losses, op.targets})},
           {op.losses});
}

void launch(Stream& s, const CrossEntropyForwardBackward& op) {
  expect_whole(op);
  expect_scale(op.name, op.scale);
  const double bytes = held_bytes(op.logits, op.part) + bytes_of({op.losses, op.logits, op.targets});
  s.launch(op, {.flops = 6 * held(op.logits, op.part), .bytes = bytes}, {op.losses, op.logits});
}

void launch(Stream& s, const SoftmaxPart& op) {
  expect_logits(op);
  expect(op.name, "stats", op.stats, DType::f32, {3, op.logits.rows()});
  s.launch(op, {3 * held(op.logits, op.part), held_bytes(op.logits, op.part) + bytes_of({op.stats, op.targets})},
           {op.stats});
}

void launch(Stream& s, const MergeSoftmax& op) {
  expect(op.name, "stats", op.stats, DType::f32, {3, op.max.numel()});
  expect_dtype(op.name, "max", op.max, DType::f32);
  s.launch(op, {.flops = 3 * numel_of(op.max), .bytes = 5 * bytes_of(op.max)}, {op.stats});
}

void launch(Stream& s, const CrossEntropyLoss& op) {
  expect(op.name, "stats", op.stats, DType::f32, {3, op.losses.numel()});
  expect_dtype(op.name, "losses", op.losses, DType::f32);
  expect_numel(op.name, "targets", op.targets, DType::i32, op.losses.numel());
  s.launch(op, {3 * numel_of(op.losses), bytes_of({op.losses, op.stats, op.targets})}, {op.losses});
}

void launch(Stream& s, const CrossEntropyGradient& op) {
  expect_scale(op.name, op.scale);
  expect_logits(op);
  expect(op.name, "stats", op.stats, DType::f32, {3, op.logits.rows()});
  const double bytes = held_bytes(op.logits, op.part) + bytes_of({op.stats, op.logits, op.targets});
  s.launch(op, {.flops = 3 * held(op.logits, op.part), .bytes = bytes}, {op.logits});
}

}  // namespace megalith
