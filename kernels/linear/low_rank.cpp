#include "kernels/linear/low_rank.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
void expect_parts(const char* op, const AdaptedRows& rows, int64_t outputs) {
  CHECK(1 <= rows.count && rows.count <= AdaptedRows::most, "{}: {} parts, expected 1 to {}", op, rows.count,
        AdaptedRows::most);
  int64_t end = 0;
  for (int g = 0; g < rows.count; g++) {
    const AdaptedRows::Part& part = rows.parts[static_cast<size_t>(g)];
    CHECK(part.first >= end && part.rows >= 0 && part.first + part.rows <= outputs,
          "{}: part {} is rows [{}, {}), expected rows of [{}, {})", op, g, part.first, part.first + part.rows, end,
          outputs);
    end = part.first + part.rows;
  }
}
}  // namespace

void spread_adapter(Stream& s, Tensor wide, Tensor b, const AdaptedRows& rows, double scale) {
  const char* op = "spread_adapter";
  expect_compute(op, "b", b);
  expect_parts(op, rows, wide.rows());
  expect_matrix(op, "b", b, b.dtype(), rows.rows(), b.cols());
  expect_matrix(op, "wide", wide, b.dtype(), wide.rows(), rows.count * b.cols());
  s.launch(
      op, {.flops = numel_of(b), .bytes = bytes_of({wide, b})}, {wide},
      [=] { cpu::spread_adapter(wide, b, rows, scale); },
      [=](auto queue) { cuda::spread_adapter(queue, wide, b, rows, scale); });
}

void collect_adapter(Stream& s, Tensor db, Tensor dwide, const AdaptedRows& rows, double scale, bool add) {
  const char* op = "collect_adapter";
  expect_dtype(op, "db", db, DType::f32);
  expect_parts(op, rows, dwide.rows());
  expect_matrix(op, "db", db, DType::f32, rows.rows(), db.cols());
  expect_matrix(op, "dwide", dwide, DType::f32, dwide.rows(), rows.count * db.cols());
  s.launch(
      op, {.flops = 2 * numel_of(db), .bytes = (add ? 3 : 2) * bytes_of(db)}, {db},
      [=] { cpu::collect_adapter(db, dwide, rows, scale, add); },
      [=](auto queue) { cuda::collect_adapter(queue, db, dwide, rows, scale, add); });
}

}  // namespace megalith
