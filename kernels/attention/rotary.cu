// A thread turns the same features of several heads of a row, so that it computes their angle once.
#include "kernels/attention/rotary.h"
#include "kernels/loops/device_cuda.h"
#include "kernels/loops/divisor.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256, heads_each = 4;

// The sizes of a pass, and the positions of its rows.
struct Rows {
  int64_t N, heads, D, width;  // heads: of q and k together; width: from row to row
  Divisor T;
  const int32_t *starts, *rows;

  __device__ int64_t position(int64_t n) const {
    return rows ? rows[2 * n + 1] : T.remainder(n) - (starts ? starts[n] : 0);
  }
};

// A thread takes a unit: n neighbouring pairs of features of `heads_each` heads. `units` are those of a row, `across`
// those of the same heads.
template <class E, int n>
__global__ void __launch_bounds__(threads)
    rotate_kernel(E* qkv, Rows s, Divisor units, Divisor across, Rotation rotation, float direction) {
  const int64_t P = rotation.pairs, unit = int64_t{blockIdx.x} * threads + threadIdx.x, row = units.quotient(unit);
  if (row >= s.N) return;
  const int64_t of_row = units.remainder(unit), first = across.remainder(of_row) * n;
  const int64_t head = across.quotient(of_row) * heads_each;
  const auto position = static_cast<uint64_t>(s.position(row));
  float cosines[n], sines[n];
#pragma unroll
  for (int k = 0; k < n; k++) {
    const Turn turn = turn_of(static_cast<uint32_t>(position * rotation.turns[first + k] >> 32));
    cosines[k] = turn.cos;
    sines[k] = direction * turn.sin;
  }
  E* at = qkv + row * s.width + head * s.D + first;
  for (int64_t h = head; h < s.heads && h < head + heads_each; h++) {
    Vector<E, n> x = load<n>(at), y = load<n>(at + P);
#pragma unroll
    for (int k = 0; k < n; k++) {
      const float a = to_float(x[k]), b = to_float(y[k]);
      x[k] = to<E>(a * cosines[k] - b * sines[k]);
      y[k] = to<E>(b * cosines[k] + a * sines[k]);
    }
    store(at, x);
    store(at + P, y);
    at += s.D;
  }
}
}  // namespace

void run(Queue queue, const Rotate& op) {
  if (op.qkv.rows() == 0) return;
  const Rows rows{.N = op.qkv.rows(),
                  .heads = op.dims.H + op.dims.kv(),
                  .D = op.dims.D,
                  .width = op.dims.qkv_width(),
                  .T = Divisor(op.dims.T, op.qkv.rows()),
                  .starts = op.positions.starts.data_or_null<int32_t>(),
                  .rows = op.positions.rows.data_or_null<int32_t>()};
  with_compute_type(op.qkv.dtype(), [&](auto tag) {
    using E = decltype(tag);
    constexpr int most = 16 / sizeof(E);
    const bool vectors = aligned(op.qkv.raw()) && op.rotation.pairs % most == 0 && op.dims.D % most == 0;
    with_width<most>(vectors, [&](auto n) {
      const int64_t across = op.rotation.pairs / n, of_row = across * ceil_div(rows.heads, heads_each);
      const unsigned blocks = blocks_for(rows.N * of_row, threads);
      launch(queue, {op.name, blocks, threads}, rotate_kernel<E, n>, op.qkv.data<E>(), rows,
             Divisor(of_row, int64_t{blocks} * threads), Divisor(across, of_row), op.rotation,
             op.forward ? 1.0f : -1.0f);
    });
  });
}

}  // namespace megalith::cuda
