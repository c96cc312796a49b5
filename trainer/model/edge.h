// An Edge enters and leaves a residual branch, and computes losses from logits. The model calls it and knows nothing
// else about parallelism. On a single rank, entering and leaving return the tensor itself. Tensor parallelism sums over
// ranks on leaving and, in backward, on entering; sequence parallelism gathers and scatters rows instead (Shoeybi et
// al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198).
//
// The residual has R rows, a branch has all N of the microbatch; they differ only under sequence parallelism. The
// returned tensor is the argument's own memory or scratch, valid until the end of the caller's scratch scope; until its
// rows are ready (InPieces), the argument must not change.
//
// Transfers may overlap with the caller's work between begin_...() and the wait for the result (Wang et al., Overlap
// Communication with Dependent Computation via Decomposition, ASPLOS 2023). An edge that does not overlap transfers
// when the result is awaited, so that callers use one order for both.
#pragma once

#include <functional>

#include "kernels/loss/cross_entropy.h"
#include "kernels/stream/arena.h"
#include "kernels/stream/stream.h"
#include "kernels/tensor/tensor.h"
#include "trainer/model/in_pieces.h"

namespace megalith {

class Edge {
 public:
  virtual ~Edge() = default;

  // Whether products that use a result take it in pieces, or as a whole.
  enum class Cut : bool { whole, pieces };
  // Computes rows of a tensor.
  using Product = std::function<void(Interval rows)>;

  virtual InPieces begin_enter(Stream& s, Arena& scratch, InPieces x,
                               Cut cut) const = 0;  // residual rows -> branch rows
  // Partial branch output -> residual; product(rows) is called for pieces of h, and must write them.
  virtual InPieces begin_leave(Stream& s, Arena& scratch, Tensor h, const Product& product) const = 0;
  // Adjoint of enter: partial gradient of the branch rows -> residual rows. As in begin_leave, product(rows) is called
  // for pieces of dx or, with Cut::whole, once, which suits callers that overlap the transfer with other work.
  virtual InPieces begin_enter_backward(Stream& s, Arena& scratch, Tensor dx, const Product& product,
                                        Cut cut) const = 0;
  virtual InPieces begin_leave_backward(Stream& s, Arena& scratch, Tensor dh, Cut cut) const = 0;  // adjoint of leave

  // For callers without other work meanwhile; h and dx are already written.
  virtual Tensor leave(Stream& s, Arena& scratch, Tensor h) const = 0;
  Tensor enter(Stream& s, Arena& scratch, Tensor x) const { return begin_enter(s, scratch, x, Cut::whole).all(); }
  Tensor enter_backward(Stream& s, Arena& scratch, Tensor dx) const {
    const Product written = [](Interval) {};
    return begin_enter_backward(s, scratch, dx, written, Cut::whole).all();
  }
  Tensor leave_backward(Stream& s, Arena& scratch, Tensor dh) const {
    return begin_leave_backward(s, scratch, dh, Cut::whole).all();
  }

  // Each element of `values` (f32, without NaN) becomes the largest of those of all parts of a branch.
  virtual void take_largest(Stream& s, Tensor values) const = 0;

  // losses (n) f32 written from logits (n, local columns of the vocabulary) and targets (n) i32, over the whole
  // vocabulary; the second also overwrites the logits with the gradient of scale * sum(losses).
  virtual void loss(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets) const = 0;
  virtual void loss_and_gradient(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets,
                                 const GradientScale& scale) const = 0;
  // stats (3, n) f32 written: the largest logit, the sum of exp(z - that), the target's logit (cross_entropy.h).
  virtual void softmax(Stream& s, Arena& scratch, Tensor stats, Tensor logits, Tensor targets) const = 0;
};

}  // namespace megalith
