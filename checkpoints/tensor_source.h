// A source of tensors by global name and range: a checkpoint of ours or a Hugging Face folder. Both serve the same
// names ("parameters/h.0.ln_1.weight") in the same layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor/tensor_shard.h"

namespace megalith {

// The prefix of weights. The trainer chooses the prefixes of optimizer state.
inline constexpr std::string_view parameters_path = "parameters/";

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual std::vector<int64_t> shape(const std::string& name) const = 0;  // Error if absent

  // Writes wanted.numel() floats to `out`. Error if the tensor is absent, has another shape, is incomplete or damaged;
  // the contents of `out` are then undefined. Not thread-safe.
  virtual void read(const TensorShard& wanted, float* out) = 0;
};

}  // namespace megalith
