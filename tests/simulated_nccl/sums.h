// The types of NCCL, and its sums and maxima of two ranks' elements.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/tensor/tensor.h"
#include "tests/simulated_nccl/nccl.h"

namespace megalith::simulated_nccl {

inline size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64: return 8;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclUint8: return 1;
    default: return 4;
  }
}

template <class T>
void combine(std::vector<char>& sum, const char* other, ncclRedOp_t op) {
  for (size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, sum.data() + at, sizeof(T));
    std::memcpy(&b, other + at, sizeof(T));
    if constexpr (sizeof(T) == 2) {
      const auto x = static_cast<float>(a), y = static_cast<float>(b);
      a = T(op == ncclSum ? x + y : std::max(x, y));
    } else {
      a = op == ncclSum ? a + b : std::max(a, b);
    }
    std::memcpy(sum.data() + at, &a, sizeof(T));
  }
}
inline void combine(std::vector<char>& sum, const char* other, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32: return combine<float>(sum, other, op);
    case ncclFloat64: return combine<double>(sum, other, op);
    case ncclInt32: return combine<int32_t>(sum, other, op);
    case ncclFloat16: return combine<float16>(sum, other, op);
    default: return combine<bfloat16>(sum, other, op);
  }
}

}  // namespace megalith::simulated_nccl
