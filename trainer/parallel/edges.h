// The edges of a residual branch, and the loss over the vocabulary, under each kind of parallelism inside a layer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/tensor/vocabulary.h"
#include "trainer/communication/mesh.h"
#include "trainer/layout/plan.h"
#include "trainer/model/edge.h"

namespace megalith {

// A single rank holds the whole layer: entering and leaving change nothing.
class WholeEdge : public Edge {
 public:
  explicit WholeEdge(const VocabularyPart& part) : part_(part) {}
  InPieces begin_enter(Stream&, Arena&, InPieces x, Cut) const override { return x; }
  InPieces begin_leave(Stream&, Arena&, Tensor h, const Product& product) const override;
  InPieces begin_enter_backward(Stream& s, Arena& scratch, Tensor dx, const Product& product, Cut) const override {
    return begin_leave(s, scratch, dx, product);
  }
  InPieces begin_leave_backward(Stream&, Arena&, Tensor dh, Cut) const override { return dh; }
  Tensor leave(Stream&, Arena&, Tensor h) const override { return h; }
  void take_largest(Stream&, Tensor) const override {}
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
  // `group` must outlive it. Its transfers overlap with products, which are cut into `pieces`; 0: no overlap.
  TensorEdge(Communicator& group, const VocabularyPart& part, int64_t pieces)
      : group_(group), pieces_(pieces), part_(part) {}
  InPieces begin_enter(Stream&, Arena&, InPieces x, Cut) const override { return x; }
  // The pieces of the sum become ready one by one.
  InPieces begin_leave(Stream& s, Arena&, Tensor h, const Product& product) const override {
    return summed(s, h, product, Cut::pieces);
  }
  InPieces begin_enter_backward(Stream& s, Arena&, Tensor dx, const Product& product, Cut cut) const override {
    return summed(s, dx, product, cut);
  }
  InPieces begin_leave_backward(Stream&, Arena&, Tensor dh, Cut) const override { return dh; }
  Tensor leave(Stream& s, Arena& scratch, Tensor h) const override;
  void take_largest(Stream& s, Tensor values) const override { group_.all_reduce(s, values, Reduce::max).wait(); }
  // Computes maxima and sums over the whole vocabulary together; logits are not transferred.
  void loss(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets) const override;
  void loss_and_gradient(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets,
                         const GradientScale& scale) const override;
  void softmax(Stream& s, Arena& scratch, Tensor stats, Tensor logits, Tensor targets) const override;

 protected:
  int64_t pieces_of(Cut cut) const { return cut == Cut::pieces ? pieces_ : 1; }
  // Begins the transfer now or, without overlap, when `rows` are awaited.
  InPieces begun(Tensor rows, std::function<Pending()> transfer) const;

  Communicator& group_;
  int64_t pieces_;

 private:
  InPieces summed(Stream& s, Tensor partial, const Product& product, Cut cut) const;
  Tensor whole_softmax(Stream& s, Arena& scratch, Tensor logits,
                       Tensor targets) const;  // returns the stats, in scratch

  VocabularyPart part_;
};

// As TensorEdge, but each rank has only its rows of the residual: they are gathered on entering and scattered on
// leaving. A piece has the rows of neighbouring ranks, in the order of the branch, so that no sum over rows changes its
// order.
class SequenceEdge : public TensorEdge {
 public:
  using TensorEdge::TensorEdge;
  InPieces begin_enter(Stream& s, Arena& scratch, InPieces x, Cut cut) const override {
    return gathered(s, scratch, x.all(), cut);
  }
  // The local rows become ready together.
  InPieces begin_leave(Stream& s, Arena& scratch, Tensor h, const Product& product) const override {
    return scattered(s, scratch, h, product, Cut::pieces);
  }
  InPieces begin_enter_backward(Stream& s, Arena& scratch, Tensor dx, const Product& product, Cut cut) const override {
    return scattered(s, scratch, dx, product, cut);
  }
  InPieces begin_leave_backward(Stream& s, Arena& scratch, Tensor dh, Cut cut) const override {
    return gathered(s, scratch, dh, cut);
  }
  Tensor leave(Stream& s, Arena& scratch, Tensor h) const override;

 private:
  InPieces gathered(Stream& s, Arena& scratch, Tensor rows, Cut cut) const;
  InPieces scattered(Stream& s, Arena& scratch, Tensor partial, const Product& product, Cut cut) const;
  // Returns memory for the local rows.
  Tensor own_rows(Arena& scratch, const Tensor& partial) const;
};

// Returns the pieces of `rows` rows: at most `wanted`, each of 16 rows or more and, if there are enough, of whole tiles
// of a GPU's product. 0 pieces: a single one.
std::vector<Interval> pieces_of_rows(int64_t rows, int64_t wanted);
// As above for ranks with rows_each rows each.
std::vector<Interval> pieces_of_ranks(int64_t ranks, int64_t rows_each, int64_t wanted);

// Returns the edge that the plan needs. `mesh` must outlive it.
std::unique_ptr<Edge> make_edge(const Plan& plan, const Mesh& mesh);

}  // namespace megalith
