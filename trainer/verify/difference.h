// What `verify` compares and by which law, apart from how the numbers get there: the tensors of a step in order of
// computation, a whole tensor put together from the shards of several ranks, and the difference between two of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/base/tensor_shard.h"

namespace megalith {

enum class TensorKind : uint8_t { initial_weight, activation, loss, gradient, weight };

struct ComparedTensor {
  std::string name;
  std::vector<int64_t> shape;  // global
  TensorKind kind;
  bool parameter = false;  // its weight or gradient, whose elements are those of the parameter `id`
  uint64_t id = 0;         // shared by the weight and the gradient of one parameter
};

// Before the first step: the initial weights.
std::vector<ComparedTensor> tensors_before(const Config& config);
// Of each step, under the names of Observer (stage.h): embedding, h.0, ..., loss (by row), mean loss, d h.N, ...,
// d embedding; then the gradients of the parameters as "d NAME", from the last to the first, and their norm before
// clipping; then the updated weights.
std::vector<ComparedTensor> tensors_of_step(const Config& config);

// The largest |a - b| / max |a| that passes. Initial weights must be equal: every layout draws or reads the same.
//   fp32: what the project promises of any two layouts: activations and losses 1e-5, gradients 1e-4, weights 1e-3.
//   bf16, fp16: in units of the distance of their neighbouring numbers, 2^-7 and 2^-10: activations 8, losses (computed
//         in f32) 1, gradients 16. An element of the residual is rounded twice a layer, and two layouts that sum in
//         another order differ by such roundings; measured with 4 layers of 256 in bf16: 2, 0.13 and 1.7 units.
// Weights that are kept in f32 have 1e-3 whatever computes; in bf16 they may be rounded to neighbours. Beside that they
// have the allowance of UncertainUpdate. `type`: of what is compared.
double tolerance_of(TensorKind kind, ComputeType type);

// A tensor as several ranks hold it.
class WholeTensor {
 public:
  WholeTensor(std::string name, std::vector<int64_t> shape);

  // Returns what `rank` holds: the values of the shards, one after the other.
  void add(int rank, std::span<const TensorShard> shards, std::span<const float> values);

  // What is wrong with it: elements that nobody holds, or that two ranks hold with different bits. Empty: nothing.
  std::string fault() const;
  std::span<const float> values() const { return values_; }
  void append_shard(std::vector<float>& values, const TensorShard& shard) const;

 private:
  TensorShard whole_;
  std::vector<float> values_;
  std::vector<int32_t> holder_;  // who was the first to hold an element; -1: nobody
  std::string disagreement_;     // the first that was found
};

// How far two runs may diverge in one update although they start from the same weights and their gradients agree. AdamW
// divides a gradient by its own size, so that an element whose gradient is not known to be other than 0 (the bias of
// the keys: always) moves by the learning rate in either direction. With d the gradient's tolerance (absolute) and g
// the largest gradient that the element has had, in any step so far, an update is uncertain by rate * min(2, d / g).
class UncertainUpdate {
 public:
  // The next step's update, from this gradient.
  void add(std::span<const float> gradient, double tolerance, double rate);
  std::span<const float> allowance() const { return allowance_; }  // by element; empty before the first step

 private:
  std::vector<float> largest_, allowance_;
  double uncertainty_ = 0;
};

// The element whose difference is the largest share of what is allowed for it; without allowance, the largest.
struct Difference {
  int64_t at = 0;        // of the flattened tensor
  double a = 0, b = 0;   // the values there
  double size = 0;       // |a - b| / max |a|
  double tolerance = 0;  // of size, with what the allowance adds
  double part = 0;       // size / tolerance; infinite where nothing is allowed or a value is not finite
  bool exceeds() const { return !(part <= 1); }
};
Difference largest_difference(std::span<const float> a, std::span<const float> b, double tolerance,
                              std::span<const float> allowance = {});

// "row 17, column 4", or "element 4" of a vector.
std::string describe_place(const std::vector<int64_t>& shape, int64_t at);

}  // namespace megalith
