// The edges of a residual branch, and the loss over the vocabulary, under each kind of parallelism inside a layer.
#pragma once

#include <memory>

#include "kernels/vocabulary.h"
#include "trainer/communication/mesh.h"
#include "trainer/model/edge.h"
#include "trainer/parallel/plan.h"

namespace megalith {

// One rank holds the whole layer: entering and leaving change nothing.
class WholeEdge : public Edge {
 public:
  explicit WholeEdge(const VocabularyPart& part) : part_(part) {}
  Tensor enter(Stream&, Arena&, Tensor x) const override { return x; }
  Tensor leave(Stream&, Arena&, Tensor h) const override { return h; }
  Tensor enter_backward(Stream&, Arena&, Tensor dx) const override { return dx; }
  Tensor leave_backward(Stream&, Arena&, Tensor dh) const override { return dh; }
  void loss(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets) const override;
  void loss_and_gradient(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets,
                         const GradientScale& scale) const override;
  void softmax(Stream& s, Arena& scratch, Tensor stats, Tensor logits, Tensor targets) const override;

 private:
  VocabularyPart part_;
};

// Each rank of the group has the whole residual and a part of each branch and of the vocabulary: partial sums are added
// up in place.
class TensorEdge : public Edge {
 public:
  // `group` must outlive it.
  TensorEdge(Communicator& group, const VocabularyPart& part) : group_(group), part_(part) {}
  Tensor enter(Stream&, Arena&, Tensor x) const override { return x; }
  Tensor leave(Stream& s, Arena& scratch, Tensor h) const override;
  Tensor enter_backward(Stream& s, Arena& scratch, Tensor dx) const override;
  Tensor leave_backward(Stream&, Arena&, Tensor dh) const override { return dh; }
  // Maxima and sums over the whole vocabulary are found together; no logits travel.
  void loss(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets) const override;
  void loss_and_gradient(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets,
                         const GradientScale& scale) const override;
  void softmax(Stream& s, Arena& scratch, Tensor stats, Tensor logits, Tensor targets) const override;

 protected:
  Communicator& group_;

 private:
  Tensor whole_softmax(Stream& s, Arena& scratch, Tensor logits, Tensor targets) const;  // the stats in scratch

  VocabularyPart part_;
};

// The same, but each rank has only its rows of the residual: they are gathered on entering and scattered on leaving.
class SequenceEdge : public TensorEdge {
 public:
  using TensorEdge::TensorEdge;
  Tensor enter(Stream& s, Arena& scratch, Tensor x) const override { return gathered(s, scratch, x); }
  Tensor leave(Stream& s, Arena& scratch, Tensor h) const override { return scattered(s, scratch, h); }
  Tensor enter_backward(Stream& s, Arena& scratch, Tensor dx) const override { return scattered(s, scratch, dx); }
  Tensor leave_backward(Stream& s, Arena& scratch, Tensor dh) const override { return gathered(s, scratch, dh); }

 private:
  Tensor gathered(Stream& s, Arena& scratch, Tensor rows) const;
  Tensor scattered(Stream& s, Arena& scratch, Tensor partial) const;
};

// As the plan has it. `mesh` must outlive it.
std::unique_ptr<Edge> make_edge(const Plan& plan, const Mesh& mesh);

}  // namespace megalith
