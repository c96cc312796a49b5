#include "kernels/linear/low_rank.h"

#include "kernels/tensor/check_args.h"

namespace megalith {

namespace {
void expect_parts(const char* op, const AdaptedRows& rows, int64_t outputs) {
  CHECK(1 <= rows.count && rows.count <= AdaptedRows::most, "{}: {} parts, expected 1 to {}", op, rows.count,
        AdaptedRows::most);
  int64_t end = 0;
  for (int g = 0; g < rows.count; g++) {
    const AdaptedRows::Group& part = rows.parts[static_cast<size_t>(g)];
    CHECK(part.first >= end && part.rows >= 0 && part.first + part.rows <= outputs,
          "{}: part {} is rows [{}, {}), expected rows of [{}, {})", op, g, part.first, part.first + part.rows, end,
          outputs);
    end = part.first + part.rows;
  }
}
}  // namespace

void launch(Stream& s, const SpreadAdapter& op) {
  expect_compute(op.name, "b", op.b);
  expect_parts(op.name, op.rows, op.wide.rows());
  expect_matrix(op.name, "b", op.b, op.b.dtype(), op.rows.rows(), op.b.cols());
  expect_matrix(op.name, "wide", op.wide, op.b.dtype(), op.wide.rows(), op.rows.count * op.b.cols());
  s.launch(op, {.flops = numel_of(op.b), .bytes = bytes_of({op.wide, op.b})}, {op.wide});
}

void launch(Stream& s, const CollectAdapter& op) {
  expect_dtype(op.name, "db", op.db, DType::f32);
  expect_parts(op.name, op.rows, op.dwide.rows());
  expect_matrix(op.name, "db", op.db, DType::f32, op.rows.rows(), op.db.cols());
  expect_matrix(op.name, "dwide", op.dwide, DType::f32, op.dwide.rows(), op.rows.count * op.db.cols());
  s.launch(op, {.flops = 2 * numel_of(op.db), .bytes = (op.add ? 3 : 2) * bytes_of(op.db)}, {op.db});
}

}  // namespace megalith
