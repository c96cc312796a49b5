// The mask of Dropout, drawn row by row.
#pragma once

#include <cmath>

#include "kernels/dropout.h"
#include "kernels/philox.h"

namespace megalith::cpu {

class DropoutMask {
 public:
  explicit DropoutMask(const Dropout& d)
      : key_(dropout_key(d)), threshold_(dropout_threshold(d)), scale_(static_cast<float>(1.0 / (1.0 - d.p))) {}

  // factors[i] = 0 or 1 / (1 - p) for columns first + i, 0 <= i < n, of the row that starts at counter (row, group).
  void draw(float* factors, uint64_t row, uint64_t group, int64_t first, int64_t n) const {
    for (int64_t c = first; c < first + n; c++) {
      const PhiloxBlock block = philox(key_, row, group + static_cast<uint64_t>(c / 4));
      factors[c - first] = block[static_cast<size_t>(c % 4)] < threshold_ ? 0.0f : scale_;
    }
  }

 private:
  uint64_t key_;
  uint32_t threshold_;
  float scale_;
};

}  // namespace megalith::cpu
