#include "trainer/parallel/edges.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "kernels/loss/cross_entropy.h"

namespace megalith {

namespace {
// A piece of fewer rows does not pay, and the CPU's product of very few rows adds in another order
// (kernels/linear/few_rows_cpu.h).
constexpr int64_t least_rows = 16;
constexpr int64_t tile_rows = 128;
}  // namespace

std::vector<Interval> pieces_of_rows(int64_t rows, int64_t wanted) {
  const int64_t most = std::clamp<int64_t>(rows / least_rows, 1, std::max<int64_t>(wanted, 1));
  int64_t each = round_up(rows, most) / most;
  each = round_up(each, each >= tile_rows ? tile_rows : least_rows);
  std::vector<Interval> pieces;
  for (int64_t begin = 0; begin < rows; begin += each) pieces.push_back({begin, std::min(begin + each, rows)});
  if (pieces.size() > 1 && pieces.back().size() < least_rows) {
    pieces.pop_back();
    pieces.back().end = rows;
  }
  return pieces;
}

std::vector<Interval> pieces_of_ranks(int64_t ranks, int64_t rows_each, int64_t wanted) {
  const int64_t ranks_at_least = (least_rows + rows_each - 1) / std::max<int64_t>(rows_each, 1);
  const int64_t count = std::clamp<int64_t>(std::min(wanted, ranks / std::max<int64_t>(ranks_at_least, 1)), 1, ranks);
  std::vector<Interval> pieces;
  for (int64_t i = 0; i < count; i++) pieces.push_back(part_of({0, ranks}, i, count));
  return pieces;
}

std::unique_ptr<Edge> make_edge(const Plan& plan, const Mesh& mesh) {
  Communicator& group = mesh.channel(Channel::tensor);
  if (plan.tensor_pieces > 0) group.run_overlapped();
  if (plan.sequence_parallel) return std::make_unique<SequenceEdge>(group, plan.pass.vocabulary, plan.tensor_pieces);
  if (plan.tensor.degree > 1) return std::make_unique<TensorEdge>(group, plan.pass.vocabulary, plan.tensor_pieces);
  return std::make_unique<WholeEdge>(plan.pass.vocabulary);
}

InPieces WholeEdge::begin_leave(Stream&, Arena&, Tensor h, const Product& product) const {
  product({0, h.rows()});
  return h;
}

void WholeEdge::loss(Stream& s, Arena&, Tensor losses, Tensor logits, Tensor targets) const {
  launch(s, CrossEntropyForward{.losses = losses, .logits = logits, .targets = targets, .part = part_});
}

void WholeEdge::loss_and_gradient(Stream& s, Arena&, Tensor losses, Tensor logits, Tensor targets,
                                  const GradientScale& scale) const {
  launch(s, CrossEntropyForwardBackward{
                .losses = losses, .logits = logits, .targets = targets, .part = part_, .scale = scale});
}

void WholeEdge::softmax(Stream& s, Arena&, Tensor stats, Tensor logits, Tensor targets) const {
  launch(s, SoftmaxPart{.stats = stats, .logits = logits, .targets = targets, .part = part_});
}

InPieces TensorEdge::begun(Tensor rows, std::function<Pending()> transfer) const {
  if (pieces_ == 0) return InPieces(rows, [transfer = std::move(transfer)] { transfer().wait(); });
  return InPieces(rows, [pending = std::make_shared<Pending>(transfer())] { pending->wait(); });
}

InPieces TensorEdge::summed(Stream& s, Tensor partial, const Product& product, Cut cut) const {
  const std::vector<Interval> pieces = pieces_of_rows(partial.rows(), pieces_of(cut));
  if (pieces.size() == 1) {
    product(pieces.front());
    return begun(partial, [this, &s, partial] { return group_.all_reduce(s, partial, Reduce::sum); });
  }
  InPieces sums = InPieces::none_of(partial);
  for (const Interval piece : pieces) {
    product(piece);
    const auto pending =
        std::make_shared<Pending>(group_.all_reduce(s, partial.rows(piece.begin, piece.end), Reduce::sum));
    sums.add(piece, [pending] { pending->wait(); });
  }
  return sums;
}

Tensor TensorEdge::leave(Stream& s, Arena&, Tensor h) const {
  group_.all_reduce(s, h, Reduce::sum).wait();
  return h;
}

Tensor TensorEdge::whole_softmax(Stream& s, Arena& scratch, Tensor logits, Tensor targets) const {
  const Tensor stats = scratch.tensor(DType::f32, {3, targets.numel()});
  softmax(s, scratch, stats, logits, targets);
  return stats;
}

void TensorEdge::softmax(Stream& s, Arena& scratch, Tensor stats, Tensor logits, Tensor targets) const {
  const int64_t n = targets.numel();
  const Tensor max = scratch.tensor(DType::f32, {n});
  launch(s, SoftmaxPart{.stats = stats, .logits = logits, .targets = targets, .part = part_});
  launch(s, Copy{.y = max, .x = stats.flat(0, n)});
  group_.all_reduce(s, max, Reduce::max).wait();
  launch(s, MergeSoftmax{.stats = stats, .max = max});
  group_.all_reduce(s, stats.flat(n, 3 * n), Reduce::sum).wait();
}

void TensorEdge::loss(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets) const {
  launch(s,
         CrossEntropyLoss{.losses = losses, .stats = whole_softmax(s, scratch, logits, targets), .targets = targets});
}

void TensorEdge::loss_and_gradient(Stream& s, Arena& scratch, Tensor losses, Tensor logits, Tensor targets,
                                   const GradientScale& scale) const {
  const Tensor stats = whole_softmax(s, scratch, logits, targets);
  launch(s, CrossEntropyLoss{.losses = losses, .stats = stats, .targets = targets});
  launch(s, CrossEntropyGradient{.logits = logits, .stats = stats, .targets = targets, .part = part_, .scale = scale});
}

Tensor SequenceEdge::own_rows(Arena& scratch, const Tensor& partial) const {
  return scratch.tensor(partial.dtype(), {partial.rows() / group_.size(), partial.cols()});
}

InPieces SequenceEdge::gathered(Stream& s, Arena& scratch, Tensor rows, Cut cut) const {
  const int64_t each = rows.rows();
  const Tensor all = scratch.tensor(rows.dtype(), {each * group_.size(), rows.cols()});
  const std::vector<Interval> pieces = pieces_of_ranks(group_.size(), each, pieces_of(cut));
  if (pieces.size() == 1) return begun(all, [this, &s, all, rows] { return group_.all_gather(s, all, rows); });
  InPieces arriving = InPieces::none_of(all);
  for (const Interval ranks : pieces) {
    const Interval piece{ranks.begin * each, ranks.end * each};
    const auto pending =
        std::make_shared<Pending>(group_.all_gather_of(s, ranks, all.rows(piece.begin, piece.end), rows));
    arriving.add(piece, [pending] { pending->wait(); });
  }
  return arriving;
}

InPieces SequenceEdge::scattered(Stream& s, Arena& scratch, Tensor partial, const Product& product, Cut cut) const {
  const Tensor own = own_rows(scratch, partial);
  const std::vector<Interval> pieces = pieces_of_ranks(group_.size(), own.rows(), pieces_of(cut));
  if (pieces.size() == 1) {
    product({0, partial.rows()});
    return begun(own, [this, &s, own, partial] { return group_.reduce_scatter(s, own, partial); });
  }
  const auto pending = std::make_shared<std::vector<Pending>>();
  for (const Interval ranks : pieces) {
    const Interval piece{ranks.begin * own.rows(), ranks.end * own.rows()};
    product(piece);
    pending->push_back(group_.reduce_scatter_to(s, ranks, own, partial.rows(piece.begin, piece.end)));
  }
  return InPieces(own, [pending] {
    for (Pending& transfer : *pending) transfer.wait();
  });
}

Tensor SequenceEdge::leave(Stream& s, Arena& scratch, Tensor h) const {
  const Tensor own = own_rows(scratch, h);
  group_.reduce_scatter(s, own, h).wait();
  return own;
}

}  // namespace megalith
