// An adapter's matrix is small: a thread takes an element.
#include "kernels/linear/low_rank.h"
#include "kernels/loops/device_cuda.h"

namespace megalith::cuda {

namespace {
constexpr int threads = 256;

// The parts of the output, as a kernel's argument.
struct Parts {
  int64_t first[AdaptedRows::most], rows[AdaptedRows::most];
  int count;
};
Parts parts_of(const AdaptedRows& rows) {
  Parts parts{};
  parts.count = rows.count;
  for (int g = 0; g < rows.count; g++) {
    parts.first[g] = rows.parts[static_cast<size_t>(g)].first;
    parts.rows[g] = rows.parts[static_cast<size_t>(g)].rows;
  }
  return parts;
}

template <class T>
__global__ void __launch_bounds__(threads)
    spread_kernel(T* wide, const T* b, Parts parts, int64_t count, int64_t r, int64_t width, float scale) {
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= count) return;
  const int64_t o = i / width, c = i % width;
  int64_t before = 0;
  float v = 0;
#pragma unroll
  for (int g = 0; g < AdaptedRows::most; g++) {
    if (g >= parts.count) continue;
    const int64_t row = o - parts.first[g];
    if (0 <= row && row < parts.rows[g] && g * r <= c && c < (g + 1) * r)
      v = scale * to_float(b[(before + row) * r + c - g * r]);
    before += parts.rows[g];
  }
  wide[i] = to<T>(v);
}

template <class = void>
__global__ void __launch_bounds__(threads) collect_kernel(float* db, const float* dwide, Parts parts, int64_t count,
                                                          int64_t r, int64_t width, float scale, bool add) {
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / r, k = i % r;
  int64_t before = 0, from = 0;
#pragma unroll
  for (int g = 0; g < AdaptedRows::most; g++) {
    if (g >= parts.count) continue;
    if (before <= row && row < before + parts.rows[g]) from = (parts.first[g] + row - before) * width + g * r + k;
    before += parts.rows[g];
  }
  db[i] = (add ? db[i] : 0) + scale * dwide[from];
}
}  // namespace

void run(Queue queue, const SpreadAdapter& op) {
  const int64_t count = op.wide.numel();
  if (count == 0) return;
  with_compute_type(op.b.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(queue, {op.name, blocks_for(count, threads), threads}, spread_kernel<T>, op.wide.data<T>(), op.b.data<T>(),
           parts_of(op.rows), count, op.b.cols(), op.wide.cols(), static_cast<float>(op.scale));
  });
}

void run(Queue queue, const CollectAdapter& op) {
  const int64_t count = op.db.numel();
  if (count == 0) return;
  launch(queue, {op.name, blocks_for(count, threads), threads}, collect_kernel<>, op.db.data<float>(),
         op.dwide.data<float>(), parts_of(op.rows), count, op.db.cols(), op.dwide.cols(), static_cast<float>(op.scale),
         op.add);
}

}  // namespace megalith::cuda
