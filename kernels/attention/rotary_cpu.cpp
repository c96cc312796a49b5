#include "kernels/attention/rotary.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

void run(Queue&, const Rotate& op) {
  const int32_t *starts = op.positions.starts.data_or_null<int32_t>(),
                *rows = op.positions.rows.data_or_null<int32_t>();
  const int64_t T = op.dims.T, D = op.dims.D, P = op.rotation.pairs, heads = op.dims.H + op.dims.kv(),
                width = op.dims.qkv_width();
  with_compute_type(op.qkv.dtype(), [&](auto tag) {
    using E = decltype(tag);
    E* qkv = op.qkv.data<E>();
    const Rotation* of = &op.rotation;
    parallel_for(op.qkv.rows(), (4 * heads + 20) * P, [=](int64_t begin, int64_t end) {
      float cosines[Rotation::most_pairs], sines[Rotation::most_pairs];
      for (int64_t n = begin; n < end; n++) {
        const int64_t position = rows ? rows[2 * n + 1] : n % T - (starts ? starts[n] : 0);
#pragma omp simd
        for (int64_t i = 0; i < P; i++) {
          const Turn turn = turn_of(static_cast<uint32_t>(static_cast<uint64_t>(position) * of->turns[i] >> 32));
          cosines[i] = turn.cos;
          sines[i] = op.forward ? turn.sin : -turn.sin;
        }
        for (int64_t h = 0; h < heads; h++) {
          E *x = qkv + n * width + h * D, *y = x + P;
#pragma omp simd
          for (int64_t i = 0; i < P; i++) {
            const float a = get(x[i]), b = get(y[i]);
            put(x[i], a * cosines[i] - b * sines[i]);
            put(y[i], b * cosines[i] + a * sines[i]);
          }
        }
      }
    });
  });
}

}  // namespace megalith::cpu
