#include <algorithm>

#include "kernels/linear/low_rank.h"
#include "kernels/loops/loops_cpu.h"

namespace megalith::cpu {

void spread_adapter(Tensor wide_, Tensor b_, const AdaptedRows& rows, double scale_) {
  with_compute_type(b_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* wide = wide_.data<T>();
    const T* b = b_.data<T>();
    const int64_t r = b_.cols(), width = wide_.cols();
    const auto scale = static_cast<float>(scale_);
    std::fill_n(wide, wide_.numel(), T{});
    for (int g = 0; g < rows.count; g++) {
      const AdaptedRows::Part part = rows.parts[static_cast<size_t>(g)];
      for (int64_t o = 0; o < part.rows; o++, b += r) {
        T* to = wide + (part.first + o) * width + g * r;
#pragma omp simd
        for (int64_t k = 0; k < r; k++) put(to[k], scale * get(b[k]));
      }
    }
  });
}

void collect_adapter(Tensor db_, Tensor dwide_, const AdaptedRows& rows, double scale_, bool add) {
  float* db = db_.data<float>();
  const float* dwide = dwide_.data<float>();
  const int64_t r = db_.cols(), width = dwide_.cols();
  const auto scale = static_cast<float>(scale_);
  for (int g = 0; g < rows.count; g++) {
    const AdaptedRows::Part part = rows.parts[static_cast<size_t>(g)];
    for (int64_t o = 0; o < part.rows; o++, db += r) {
      const float* from = dwide + (part.first + o) * width + g * r;
#pragma omp simd
      for (int64_t k = 0; k < r; k++) db[k] = (add ? db[k] : 0) + scale * from[k];
    }
  }
}

}  // namespace megalith::cpu
