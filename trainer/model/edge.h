// An Edge enters and leaves a residual branch, and makes losses of logits. The model calls it and knows no more:
// alone, entering and leaving hand the tensor back; tensor parallelism sums over ranks on leaving and, in backward, on
// entering; sequence parallelism gathers and scatters rows instead (Shoeybi et al., arXiv 1909.08053; Korthikanti et
// al., arXiv 2205.05198).
//
// The residual has R rows, a branch has all N of the microbatch; they differ under sequence parallelism only. The
// tensor returned is the argument's own memory or scratch, valid until the caller's scratch scope ends.
#pragma once

#include "kernels/base/arena.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/cross_entropy.h"

namespace megalith {

class Edge {
 public:
  virtual ~Edge() = default;
  virtual Tensor enter(Stream& s, Arena& scratch, Tensor x) const = 0;            // residual rows -> branch rows
  virtual Tensor leave(Stream& s, Arena& scratch, Tensor h) const = 0;            // partial branch output -> residual
  virtual Tensor enter_backward(Stream& s, Arena& scratch, Tensor dx) const = 0;  // adjoint of enter
  virtual Tensor leave_backward(Stream& s, Arena& scratch, Tensor dh) const = 0;  // adjoint of leave

  // losses (n) f32 written from logits (n, columns of the vocabulary that are here) and targets (n) i32, all of the
  // vocabulary taken together; the second also overwrites the logits with the gradient of scale * sum(losses).
  virtual void loss(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets) const = 0;
  virtual void loss_and_gradient(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets,
                                 const GradientScale& scale) const = 0;
  // stats (3, n) f32 written: the largest logit, the sum of exp(z - that), the target's logit (cross_entropy.h).
  virtual void softmax(Stream& s, Arena& scratch, Tensor stats, Tensor logits, Tensor targets) const = 0;
};

}  // namespace megalith
