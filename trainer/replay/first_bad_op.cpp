#include "trainer/replay/first_bad_op.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "kernels/tensor/finite.h"
#include "trainer/program/update.h"

namespace megalith {

namespace {

using Op = Instruction::Op;

struct PassPart {
  int64_t number;  // ascending in the order of the pass
  std::string name;
  bool with_weights = false;  // the next number is that of the gradients of matrices
};

// The gradients of a layer's matrices, which the layer does not read, come after the rest of its backward pass, as in a
// backward pass in two halves.
bool is_gradient_of_matrix(std::string_view op) {
  return op == "linear_backward_weight" || op == "linear_backward_bias" || op == "collect_adapter";
}

PassPart part_of_pass(const Instruction& i, int64_t layers) {
  const auto layer = [&](const char* pass) { return fmt::format("{} of block {}", pass, i.layer); };
  switch (i.op) {
    case Op::forward: return {2 + i.layer, layer("the forward pass")};
    case Op::head:
    case Op::head_loss:
    case Op::keep_loss:
    case Op::count_loss: return {2 + layers, "the head and the loss"};
    case Op::recompute:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight: return {3 + layers + 2 * (layers - 1 - i.layer), layer("the backward pass"), true};
    case Op::embed_backward: return {3 + 3 * layers, "the backward pass of the embedding"};
    default: return {1, "the embedding"};
  }
}

}  // namespace

void FirstBadOp::follow(const Instruction* i) {
  if (i == nullptr || is_of_update(i->op)) {
    sequence_ = std::numeric_limits<int64_t>::max();
    part_ = 0;
    with_weights_ = false;
    microbatch_ = -1;
    part_name_ = "the update";
    return;
  }
  microbatch_ = i->microbatch;
  if (microbatch_ >= 0) {
    const PassPart part = part_of_pass(*i, plan_.model.layers);
    sequence_ = plan_.batch.sequences(microbatch_).begin;
    part_ = part.number;
    with_weights_ = part.with_weights;
    part_name_ = part.name;
    return;
  }
  sequence_ = plan_.batch.batch;
  part_ = 0;
  with_weights_ = false;
  part_name_ = i->unit == Instruction::none
                   ? "the sums of gradients"
                   : fmt::format("the gradient of the {}", plan_.unit(static_cast<size_t>(i->unit)).name);
}

void FirstBadOp::launched(const char* name, std::span<const Tensor> written) {
  if (looking_ || written.empty()) return;
  const int64_t part = part_ + (with_weights_ && is_gradient_of_matrix(name) ? 1 : 0);
  const std::array<int64_t, 3> place{sequence_, part, ++ops_[{sequence_, part_}]};
  if (first_ && first_->place < place) return;
  int64_t values = 0, of = 0;
  for (const Tensor& t : written) {
    values += not_finite(t);
    of += t.numel();
  }
  if (values > 0)
    first_ = {.place = place,
              .op = name,
              .part = part_name_,
              .microbatch = microbatch_,
              .rank = plan_.rank,
              .values = values,
              .of = of};
}

int64_t FirstBadOp::not_finite(const Tensor& t) {
  constexpr int64_t most = int64_t{4} << 20;  // elements a download
  if (t.dtype() == DType::i32) return 0;
  int64_t count = 0;
  looking_ = true;
  for (int64_t begin = 0; begin < t.numel(); begin += most) {
    stream_.download("look", t.flat(begin, std::min(begin + most, t.numel())),
                     [&](Tensor host) { count += count_not_finite(host.raw(), host.dtype(), host.numel()); });
    stream_.synchronize();
  }
  looking_ = false;
  return count;
}

}  // namespace megalith
