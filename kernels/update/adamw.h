// AdamW over a flat range of parameters, with decoupled weight decay:
//   g = scale * grad,  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//   p = p - lr * decay * p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
// Source: Loshchilov, Hutter, Decoupled Weight Decay Regularization, arXiv 1711.05101.
//
// Arithmetic is in f32 whatever the types. bf16 state is rounded when it is stored: to nearest, or stochastically, so
// that small updates survive in the mean (Gupta et al., Deep Learning with Limited Numerical Precision, 1502.02551).
#pragma once

#include <bit>
#include <type_traits>

#include "kernels/elementwise/philox.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/columns.h"
#include "kernels/tensor/tensor.h"

namespace megalith {

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

// Rounding of bf16 state. A random word depends on the step and on the element's index in the whole parameter, as in
// NormalFill, so every layout draws the same numbers.
struct Rounding {
  bool stochastic = false;  // else to nearest
  uint64_t key = 0;         // of the step: rounding_key
  uint64_t stream = 0;      // the parameter's
  int64_t begin = 0;        // the update covers elements [begin, begin + n) of these columns
  Columns columns{};

  // Returns random words for element i: master, m and v take one each.
  constexpr PhiloxBlock words(int64_t i) const {
    return philox(key, stream, static_cast<uint64_t>(place_in_whole(columns, begin + i)));
  }
};
inline uint64_t rounding_key(uint64_t seed, int64_t step) {
  const PhiloxBlock block = philox(seed, static_cast<uint64_t>(step), ~uint64_t{0});
  return uint64_t{block[1]} << 32 | block[0];
}
// Adds random bits to the lower half of a float and keeps the upper half.
constexpr uint16_t stochastic_bf16(float value, uint32_t word) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  const uint32_t rounded = finite ? bits + (word >> 16) : (bits & 0x7fffffu) ? bits | 0x400000u : bits;
  return static_cast<uint16_t>(rounded >> 16);
}

// Calls f(T{}, std::bool_constant<stochastic>) for state of type T, f32 or bf16; f32 is never rounded stochastically.
template <class F>
void with_state_type(DType dtype, const Rounding& rounding, F&& f) {
  if (dtype == DType::f32)
    f(float{}, std::false_type{});
  else if (rounding.stochastic)
    f(bfloat16{}, std::true_type{});
  else
    f(bfloat16{}, std::false_type{});
}

// A skipped step writes nothing.
struct AdamWUpdate {
  static constexpr const char* name = "adamw_update";
  Tensor master;     // (n) f32 or bf16, in place
  Tensor m, v;       // (n), both f32 or both bf16, in place
  Tensor working{};  // (n), in a compute type: the new master rounded to nearest; empty when the master itself computes
  Tensor grad;       // (n) f32
  Tensor state;      // as written by DecideUpdate (decide_update.h)
  AdamW adamw;
  Rounding rounding{};
};

void launch(Stream& s, const AdamWUpdate& op);
namespace cpu {
void run(Queue& queue, const AdamWUpdate& op);
}  // namespace cpu
namespace cuda {
void run(Queue queue, const AdamWUpdate& op);
}  // namespace cuda

}  // namespace megalith
