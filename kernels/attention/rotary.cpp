#include "kernels/attention/rotary.h"

#include <cmath>
#include <numbers>

#include "kernels/tensor/check_args.h"

namespace megalith {

Rotation make_rotation(int64_t pairs, double base, const RotaryScaling& scaling) {
  CHECK(1 <= pairs && pairs <= Rotation::most_pairs, "rotary positions of {} pairs of features; 1 to {}", pairs,
        Rotation::most_pairs);
  Rotation rotation{.pairs = pairs};
  for (int64_t i = 0; i < pairs; i++) {
    double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs));
    const double waves =
        scaling.original_context * frequency / (2 * std::numbers::pi);  // waves in the original context
    if (scaling.factor != 1 && waves < scaling.high) {
      const double kept = waves < scaling.low ? 0 : (waves - scaling.low) / (scaling.high - scaling.low);
      frequency *= (1 - kept) / scaling.factor + kept;
    }
    rotation.turns[i] = static_cast<uint64_t>(std::ldexp(frequency / (2 * std::numbers::pi), 64));
  }
  return rotation;
}

void launch(Stream& s, const Rotate& op) {
  const int64_t heads = op.dims.H + op.dims.kv(), P = op.rotation.pairs, N = op.qkv.rows();
  expect_compute(op.name, "qkv", op.qkv);
  expect_matrix(op.name, "qkv", op.qkv, op.qkv.dtype(), op.dims.B * op.dims.T, op.dims.qkv_width());
  CHECK(1 <= P && 2 * P <= op.dims.D, "{}: {} pairs of features in heads of {}", op.name, P, op.dims.D);
  if (!op.positions.starts.empty()) expect(op.name, "starts", op.positions.starts, DType::i32, {op.dims.B, op.dims.T});
  if (!op.positions.rows.empty()) expect(op.name, "rows", op.positions.rows, DType::i32, {N, 2});
  const double turned = static_cast<double>(N * heads * P);
  const double bytes =
      4 * turned * static_cast<double>(size_of(op.qkv.dtype())) + bytes_of({op.positions.starts, op.positions.rows});
  s.launch(op, {6 * turned + 30 * static_cast<double>(N * P), bytes}, {op.qkv});
}

}  // namespace megalith
