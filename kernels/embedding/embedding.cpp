#include "kernels/embedding/embedding.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
void expect_positions(const char* op, int64_t rows, int64_t T, const char* name, const Tensor& wpe) {
  CHECK(T > 0 && rows % T == 0, "{}: {} tokens do not divide into sequences of {}", op, rows, T);
  CHECK(wpe.empty() || wpe.rows() >= T, "{}: {} has {} positions, fewer than the sequence of {}", op, name, wpe.rows(),
        T);
}
void expect_starts(const char* op, const Tensor& starts, int64_t rows, int64_t T) {
  if (!starts.empty()) expect(op, "starts", starts, DType::i32, {rows / T, T});
}
}  // namespace

void embedding_forward(Stream& s, Tensor y, Tensor tokens, Tensor wte, Tensor wpe, int64_t T, VocabularyPart part,
                       Tensor starts) {
  const char* op = "embedding_forward";
  expect_compute(op, "wte", wte);
  expect_residual(op, "y", y, wte.dtype());
  expect_numel(op, "tokens", tokens, DType::i32, y.rows());
  expect_matrix(op, "wte", wte, wte.dtype(), wte.rows(), y.cols());
  if (!wpe.empty()) expect_matrix(op, "wpe", wpe, wte.dtype(), wpe.rows(), y.cols());
  expect_part(op, part, "wte", wte.rows());
  expect_positions(op, y.rows(), T, "wpe", wpe);
  expect_starts(op, starts, y.rows(), T);
  // A cost may not depend on data, so a part is assumed to hold its share of the tokens.
  const double bytes = bytes_of(y) + part.share() * numel_of(y) * static_cast<double>(size_of(wte.dtype())) +
                       bytes_of({tokens, starts, wpe.empty() ? wpe : wpe.rows(0, T)});
  s.launch(
      op, {.flops = part.share() * numel_of(y), .bytes = bytes}, {y},
      [=] { cpu::embedding_forward(y, tokens, wte, wpe, starts, T, part); },
      [=](auto queue) { cuda::embedding_forward(queue, y, tokens, wte, wpe, starts, T, part); });
}

void embedding_backward(Stream& s, Tensor dwte, Tensor dwpe, Tensor dy, Tensor tokens, int64_t T, VocabularyPart part,
                        Tensor starts) {
  const char* op = "embedding_backward";
  expect_compute(op, "dy", dy);
  expect_numel(op, "tokens", tokens, DType::i32, dy.rows());
  if (!dwte.empty()) expect_matrix(op, "dwte", dwte, DType::f32, dwte.rows(), dy.cols());
  if (!dwpe.empty()) expect_matrix(op, "dwpe", dwpe, DType::f32, dwpe.rows(), dy.cols());
  if (!dwte.empty()) expect_part(op, part, "dwte", dwte.rows());
  expect_positions(op, dy.rows(), T, "dwpe", dwpe);
  expect_starts(op, starts, dy.rows(), T);
  const double numel = numel_of(dy);
  const double held = dwte.empty() ? 0 : part.share();
  const double touched = 2.0 * 4.0 * (held * numel + (dwpe.empty() ? 0 : static_cast<double>(T * dy.cols())));
  s.launch(
      op, {.flops = (1 + held) * numel, .bytes = touched + bytes_of({dy, starts})}, {dwte, dwpe},
      [=] { cpu::embedding_backward(dwte, dwpe, dy, tokens, starts, T, part); },
      [=](auto queue) { cuda::embedding_backward(queue, dwte, dwpe, dy, tokens, starts, T, part); });
}

}  // namespace megalith
