// Compares the tensors of two checkpoints, whatever layouts wrote them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoints/reader.h"

namespace megalith {

struct TensorDifference {
  struct Side {
    std::vector<int64_t> shape{};
    DType dtype = DType::f32;
    bool operator==(const Side&) const = default;
  };
  // The pair of elements that are furthest apart.
  struct Most {
    double difference = 0;  // infinity if one of them is not finite
    int64_t element = 0;    // index in the flattened tensor
    float a = 0, b = 0;
  };
  std::string name;
  std::optional<Side> a{}, b{};  // empty: absent
  // Set if both have the tensor, in one shape:
  int64_t elements = 0;
  int64_t differing = 0;  // elements whose bits, as f32, differ
  Most absolute{};        // |a - b|
  Most relative{};        // |a - b| / max(|a|, |b|)
};

struct TensorComparison {
  int64_t tensors = 0, elements = 0;          // counts over both checkpoints, each tensor once
  std::vector<TensorDifference> different{};  // by name
};

// Reads both block by block, in a few MiB. CorruptFile if one is damaged; Error if elements of a tensor are missing.
TensorComparison compare_tensors(CheckpointReader& a, CheckpointReader& b);

// Returns "parameters/wte.weight: 12 of 98304 elements, at most 0.5 at [3, 7] (1.5 | 1), relative ...".
std::string describe(const TensorDifference& difference);

}  // namespace megalith
