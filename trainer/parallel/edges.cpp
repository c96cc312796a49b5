#include "trainer/parallel/edges.h"

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"

namespace megalith {

std::unique_ptr<Edge> make_edge(const Plan& plan, const Mesh& mesh) {
  Communicator& group = mesh.channel(Channel::tensor);
  if (plan.sequence_parallel) return std::make_unique<SequenceEdge>(group, plan.pass.vocabulary);
  if (plan.tensor.degree > 1) return std::make_unique<TensorEdge>(group, plan.pass.vocabulary);
  return std::make_unique<WholeEdge>(plan.pass.vocabulary);
}

void WholeEdge::loss(Stream& s, Arena&, Tensor losses, Tensor logits, Tensor targets) const {
  cross_entropy_forward(s, losses, logits, targets, part_);
}

void WholeEdge::loss_and_gradient(Stream& s, Arena&, Tensor losses, Tensor logits, Tensor targets,
                                  const GradientScale& scale) const {
  cross_entropy_forward_backward(s, losses, logits, targets, part_, scale);
}

void WholeEdge::softmax(Stream& s, Arena&, Tensor stats, Tensor logits, Tensor targets) const {
  softmax_part(s, stats, logits, targets, part_);
}

Tensor TensorEdge::leave(Stream& s, Arena&, Tensor h) const {
  group_.all_reduce(s, h, Reduce::sum).wait();
  return h;
}

Tensor TensorEdge::enter_backward(Stream& s, Arena&, Tensor dx) const {
  group_.all_reduce(s, dx, Reduce::sum).wait();
  return dx;
}

Tensor TensorEdge::whole_softmax(Stream& s, Arena& scratch, Tensor logits, Tensor targets) const {
  const Tensor stats = scratch.tensor(DType::f32, {3, targets.numel()});
  softmax(s, scratch, stats, logits, targets);
  return stats;
}

void TensorEdge::softmax(Stream& s, Arena& scratch, Tensor stats, Tensor logits, Tensor targets) const {
  const int64_t n = targets.numel();
  const Tensor max = scratch.tensor(DType::f32, {n});
  softmax_part(s, stats, logits, targets, part_);
  copy(s, max, stats.flat(0, n));
  group_.all_reduce(s, max, Reduce::max).wait();
  merge_softmax(s, stats, max);
  group_.all_reduce(s, stats.flat(n, 3 * n), Reduce::sum).wait();
}

void TensorEdge::loss(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets) const {
  cross_entropy_loss(s, losses, whole_softmax(s, scratch, logits, targets), targets);
}

void TensorEdge::loss_and_gradient(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets,
                                   const GradientScale& scale) const {
  const Tensor stats = whole_softmax(s, scratch, logits, targets);
  cross_entropy_loss(s, losses, stats, targets);
  cross_entropy_gradient(s, logits, stats, targets, part_, scale);
}

Tensor SequenceEdge::gathered(Stream& s, Arena& scratch, Tensor rows) const {
  const Tensor all = scratch.tensor(rows.dtype(), {rows.rows() * group_.size(), rows.cols()});
  group_.all_gather(s, all, rows).wait();
  return all;
}

Tensor SequenceEdge::scattered(Stream& s, Arena& scratch, Tensor partial) const {
  const Tensor rows = scratch.tensor(partial.dtype(), {partial.rows() / group_.size(), partial.cols()});
  group_.reduce_scatter(s, rows, partial).wait();
  return rows;
}

}  // namespace megalith
