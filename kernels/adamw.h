// AdamW over a flat range of parameters, with decoupled weight decay:
//   g = scale * grad,  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//   p = p - lr * decay * p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
// Source: Loshchilov, Hutter, Decoupled Weight Decay Regularization, arXiv 1711.05101.
//
// Arithmetic is in f32 whatever the types. State in bf16 is rounded when it is stored, to nearest or at random: up with
// the probability that makes the mean what was rounded, so that small updates are not lost. Source: Gupta et al., Deep
// Learning with Limited Numerical Precision, arXiv 1502.02551.
#pragma once

#include <bit>

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/columns.h"
#include "kernels/philox.h"

namespace megalith {

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

// How what is stored in bf16 is rounded. A draw belongs to the step and to the element's place in its whole parameter,
// as normal_fill's does, and so does not depend on who holds the element.
struct Rounding {
  bool stochastic = false;  // else to nearest
  uint64_t key = 0;         // of the step: rounding_key
  uint64_t stream = 0;      // of the parameter
  int64_t begin = 0;        // elements [begin, begin + n) of these columns
  Columns columns{};

  // Of element i: draws for master, m and v.
  constexpr PhiloxBlock words(int64_t i) const {
    return philox(key, stream, static_cast<uint64_t>(place_in_whole(columns, begin + i)));
  }
};
inline uint64_t rounding_key(uint64_t seed, int64_t step) {
  const PhiloxBlock block = philox(seed, static_cast<uint64_t>(step), ~uint64_t{0});
  return uint64_t{block[1]} << 32 | block[0];
}
// The upper half of the bits of a float, up if the lower half plus a random one carries over.
constexpr uint16_t stochastic_bf16(float value, uint32_t word) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  const uint32_t rounded = finite ? bits + (word >> 16) : (bits & 0x7fffffu) ? bits | 0x400000u : bits;
  return static_cast<uint16_t>(rounded >> 16);
}

// master, m, v (n) updated in place: master in f32 or bf16, m and v alike in f32 or bf16; grad (n) f32; state as
// decide_update left it (decide_update.h). working (n) in a compute type gets the new master, rounded to nearest; empty
// when the master itself is what computes. Where the step is skipped nothing is written.
void adamw_update(Stream& s, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state,
                  const AdamW& a, const Rounding& rounding = {});

// The implementations; arguments are as above and were checked.
namespace cpu {
void adamw_update(Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state, const AdamW& a,
                  const Rounding& rounding);
}  // namespace cpu
namespace cuda {
void adamw_update(Queue queue, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor state,
                  const AdamW& a, const Rounding& rounding);
}  // namespace cuda

}  // namespace megalith
