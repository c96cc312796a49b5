#include <algorithm>

#include "kernels/linear/low_rank.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

void run(Queue&, const SpreadAdapter& op) {
  with_compute_type(op.b.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* wide = op.wide.data<T>();
    const T* b = op.b.data<T>();
    const int64_t r = op.b.cols(), width = op.wide.cols();
    const auto scale = static_cast<float>(op.scale);
    std::fill_n(wide, op.wide.numel(), T{});
    for (int g = 0; g < op.rows.count; g++) {
      const AdaptedRows::Group part = op.rows.parts[static_cast<size_t>(g)];
      for (int64_t o = 0; o < part.rows; o++, b += r) {
        T* to = wide + (part.first + o) * width + g * r;
#pragma omp simd
        for (int64_t k = 0; k < r; k++) put(to[k], scale * get(b[k]));
      }
    }
  });
}

void run(Queue&, const CollectAdapter& op) {
  float* db = op.db.data<float>();
  const float* dwide = op.dwide.data<float>();
  const int64_t r = op.db.cols(), width = op.dwide.cols();
  const auto scale = static_cast<float>(op.scale);
  for (int g = 0; g < op.rows.count; g++) {
    const AdaptedRows::Group part = op.rows.parts[static_cast<size_t>(g)];
    for (int64_t o = 0; o < part.rows; o++, db += r) {
      const float* from = dwide + (part.first + o) * width + g * r;
#pragma omp simd
      for (int64_t k = 0; k < r; k++) db[k] = (op.add ? db[k] : 0) + scale * from[k];
    }
  }
}

}  // namespace megalith::cpu
