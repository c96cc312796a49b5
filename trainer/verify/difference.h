// Compares tensors for `megalith verify`: lists the tensors of a step in order of computation, gathers whole tensors
// from shards, and finds the difference between two of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/tensor/tensor_shard.h"

namespace megalith {

enum class TensorKind : uint8_t { initial_weight, activation, loss, gradient, weight };

struct ComparedTensor {
  std::string name;
  std::vector<int64_t> shape;  // global
  TensorKind kind;
  bool parameter = false;  // the weight or gradient of a parameter
  uint64_t id = 0;         // shared by the weight and the gradient of a parameter
};

// Returns the initial weights.
std::vector<ComparedTensor> tensors_before(const Config& config);
// Returns the tensors of each step by Observer's names (stage.h): embedding, h.0, ..., loss (by row), mean loss, d h.N,
// ..., d embedding; the gradients "d NAME" of trained parameters, from last to first; the norm before clipping; the
// weights.
std::vector<ComparedTensor> tensors_of_step(const Config& config);

// Returns the largest |a - b| / max |a| that passes. Initial weights must be equal. fp32: activations and losses 1e-5,
// gradients 1e-4, weights 1e-3, as the project promises for any two layouts. bf16, fp16: in units in the last place,
// 2^-7 and 2^-10: activations 8, losses (computed in f32) 1, gradients 16, since the residual is rounded twice a layer.
// Measured with 4 layers of 256 in bf16: 2, 0.13 and 1.7 units. Weights have 1e-3, in bf16 one unit more, plus the
// allowance of UncertainUpdate. `type` is that of the compared tensor. With products in fp8, gradients have one unit of
// e5m2, 2^-2: in 4 layers of 64, two layouts' activations differed by 0.03, losses by 0.003 and gradients by 0.14.
double tolerance_of(TensorKind kind, ComputeType type, bool fp8 = false);

// A whole tensor, gathered from the shards of several ranks.
class WholeTensor {
 public:
  WholeTensor(std::string name, std::vector<int64_t> shape);

  // Adds the shards of `rank`; `values` has their elements in order.
  void add(int rank, std::span<const TensorShard> shards, std::span<const float> values);

  // Returns an error if no rank holds an element, or two ranks hold different bits of it.
  std::string fault() const;
  std::span<const float> values() const { return values_; }
  void append_shard(std::vector<float>& values, const TensorShard& shard) const;

 private:
  TensorShard whole_;
  std::vector<float> values_;
  std::vector<int32_t> holder_;  // first rank that holds the element; -1: none
  std::string disagreement_;     // first
};

// Bounds how far two runs with the same weights and equal gradients may diverge in one update. AdamW divides a gradient
// by its own size, so an element whose gradient may be 0 (the bias of the keys: always) moves by the learning rate in
// either direction. With the gradient's absolute tolerance d and the element's largest gradient so far g, an update is
// uncertain by rate * min(2, d / g).
class UncertainUpdate {
 public:
  // Adds the next step's update.
  void add(std::span<const float> gradient, double tolerance, double rate);
  std::span<const float> allowance() const { return allowance_; }  // by element; empty before the first step

 private:
  std::vector<float> largest_, allowance_;
  double uncertainty_ = 0;
};

// The element with the largest ratio of difference to tolerance.
struct Difference {
  int64_t at = 0;        // index in the flattened tensor
  double a = 0, b = 0;   // values at `at`
  double size = 0;       // |a - b| / max |a|
  double tolerance = 0;  // with the allowance
  double part = 0;       // size / tolerance; infinite for tolerance 0 or values that are not finite
  bool exceeds() const { return !(part <= 1); }
};
Difference largest_difference(std::span<const float> a, std::span<const float> b, double tolerance,
                              std::span<const float> allowance = {});

// Returns "row 17, column 4", or "element 4" for a vector.
std::string describe_place(const std::vector<int64_t>& shape, int64_t at);

}  // namespace megalith
