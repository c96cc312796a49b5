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

void launch(Stream& s, const EmbeddingForward& op) {
  expect_compute(op.name, "wte", op.wte);
  expect_residual(op.name, "y", op.y, op.wte.dtype());
  expect_numel(op.name, "tokens", op.tokens, DType::i32, op.y.rows());
  expect_matrix(op.name, "wte", op.wte, op.wte.dtype(), op.wte.rows(), op.y.cols());
  if (!op.wpe.empty()) expect_matrix(op.name, "wpe", op.wpe, op.wte.dtype(), op.wpe.rows(), op.y.cols());
  expect_part(op.name, op.part, "wte", op.wte.rows());
  expect_positions(op.name, op.y.rows(), op.T, "wpe", op.wpe);
  expect_starts(op.name, op.starts, op.y.rows(), op.T);
  // A cost may not depend on data, so a part is assumed to hold its share of the tokens.
  const double bytes = bytes_of(op.y) +
                       op.part.share() * numel_of(op.y) * static_cast<double>(size_of(op.wte.dtype())) +
                       bytes_of({op.tokens, op.starts, op.wpe.empty() ? op.wpe : op.wpe.rows(0, op.T)});
  s.launch(op, {.flops = op.part.share() * numel_of(op.y), .bytes = bytes}, {op.y});
}

void launch(Stream& s, const EmbeddingBackward& op) {
  expect_compute(op.name, "dy", op.dy);
  expect_numel(op.name, "tokens", op.tokens, DType::i32, op.dy.rows());
  if (!op.dwte.empty()) expect_matrix(op.name, "dwte", op.dwte, DType::f32, op.dwte.rows(), op.dy.cols());
  if (!op.dwpe.empty()) expect_matrix(op.name, "dwpe", op.dwpe, DType::f32, op.dwpe.rows(), op.dy.cols());
  if (!op.dwte.empty()) expect_part(op.name, op.part, "dwte", op.dwte.rows());
  expect_positions(op.name, op.dy.rows(), op.T, "dwpe", op.dwpe);
  expect_starts(op.name, op.starts, op.dy.rows(), op.T);
  const double numel = numel_of(op.dy);
  const double held = op.dwte.empty() ? 0 : op.part.share();
  const double touched = 2.0 * 4.0 * (held * numel + (op.dwpe.empty() ? 0 : static_cast<double>(op.T * op.dy.cols())));
  s.launch(op, {.flops = (1 + held) * numel, .bytes = touched + bytes_of({op.dy, op.starts})}, {op.dwte, op.dwpe});
}

}  // namespace megalith
