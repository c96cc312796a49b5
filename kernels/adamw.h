// AdamW over a flat range of parameters, with decoupled weight decay:
//   g = scale * grad,  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//   p = p - lr * decay * p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
// Source: Loshchilov, Hutter, Decoupled Weight Decay Regularization, arXiv 1711.05101.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace megalith {

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  int64_t update = 1;  // t above: 1 for the first update of the run
};

// master, m, v (n) f32 updated in place; grad (n) f32; scale (1) f64 lives on the device (the clip factor).
// working (n) in the compute dtype gets the new parameters, rounded; empty when the master itself is what computes.
void adamw_update(Stream& s, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale,
                  const AdamW& a);

// The implementations; arguments are as above and were checked.
namespace cpu {
void adamw_update(Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale, const AdamW& a);
}  // namespace cpu
namespace cuda {
void adamw_update(Queue queue, Tensor master, Tensor m, Tensor v, Tensor working, Tensor grad, Tensor scale,
                  const AdamW& a);
}  // namespace cuda

}  // namespace megalith
