#include "trainer/model/head.h"

#include <algorithm>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"

namespace megalith {

Head::Head(Declarations& model, const ModelConfig& config, const Embedding& embedding)
    : units_{model.begin_unit("final norm"), embedding.units().front()},
      norm_(model, "ln_f", config),
      matrix_(config.tied_head ? embedding.table() : declare_matrix(model, config)) {}

Param Head::declare_matrix(Declarations& model, const ModelConfig& config) {
  units_.back() = model.begin_unit("head matrix");
  return model.parameter(token_matrix("lm_head.weight", config));
}

// The result is in scratch until the caller's scope ends.
Norm::Saved Head::norm(const Context& c, std::span<const UnitTensors> w, Tensor x) const {
  Norm::Saved normed;
  norm_.allocate(c.scratch, w[1][matrix_].dtype(), x.rows(), normed);
  norm_.forward(c, w[0], normed, x, {});
  return normed;
}

// Calls use(begin, end, z) for the logits z of rows [begin, end) of h, a chunk at a time.
template <class Use>
void Head::in_chunks(const Context& c, std::span<const UnitTensors> w, Tensor h, Use use) const {
  const int64_t N = h.rows();
  for (int64_t begin = 0; begin < N; begin += c.pass.head_rows) {
    const auto scope = c.scratch.scope();
    const int64_t end = std::min(N, begin + c.pass.head_rows);
    const Tensor z = c.scratch.tensor(h.dtype(), {end - begin, w[1][matrix_].rows()});
    launch(c.s, LinearForward{.y = z, .x = h.rows(begin, end), .w = w[1][matrix_]});
    use(begin, end, z);
  }
}

void Head::loss(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor targets, Tensor losses) const {
  const auto scope = c.scratch.scope();
  const Tensor h = c.edge.enter(c.s, c.scratch, norm(c, w, x).y);
  in_chunks(c, w, h, [&](int64_t begin, int64_t end, const Tensor& z) {
    c.edge.loss(c.s, c.scratch, losses.flat(begin, end), z, targets.flat(begin, end));
  });
}

void Head::loss_and_gradient(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor targets,
                             const GradientScale& scale, Tensor losses, Tensor dx, std::span<const UnitTensors> dw,
                             bool add) const {
  const auto scope = c.scratch.scope();
  const Tensor dh = c.scratch.tensor(w[1][matrix_].dtype(), {targets.numel(), x.cols()});
  const Norm::Saved normed = norm(c, w, x);
  const Tensor h = c.edge.enter(c.s, c.scratch, normed.y);
  in_chunks(c, w, h, [&](int64_t begin, int64_t end, const Tensor& z) {  // z becomes its own gradient
    c.edge.loss_and_gradient(c.s, c.scratch, losses.flat(begin, end), z, targets.flat(begin, end), scale);
    if (const Tensor dmatrix = dw[1][matrix_]; !dmatrix.empty())
      launch(c.s, LinearBackwardWeight{.dw = dmatrix, .dy = z, .x = h.rows(begin, end), .add = add || begin > 0});
    launch(c.s, LinearBackwardInput{.dx = dh.rows(begin, end), .dy = z, .w = w[1][matrix_]});
  });
  launch(c.s, Fill{.y = dx, .value = 0});
  norm_.backward(c, w[0], normed, dw[0], dx, c.edge.enter_backward(c.s, c.scratch, dh), x);
}

void Head::softmax(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor targets, Tensor stats) const {
  const auto scope = c.scratch.scope();
  const int64_t N = targets.numel();
  const Tensor h = c.edge.enter(c.s, c.scratch, norm(c, w, x).y);
  in_chunks(c, w, h, [&](int64_t begin, int64_t end, const Tensor& z) {
    const int64_t n = end - begin;
    const Tensor of_chunk = c.scratch.tensor(DType::f32, {3, n});
    c.edge.softmax(c.s, c.scratch, of_chunk, z, targets.flat(begin, end));
    for (int64_t i = 0; i < 3; i++)
      launch(c.s, Copy{.y = stats.flat(i * N + begin, i * N + end), .x = of_chunk.flat(i * n, (i + 1) * n)});
  });
}

void Head::logits(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor logits) const {
  const auto scope = c.scratch.scope();
  launch(c.s, LinearForward{.y = logits, .x = norm(c, w, x).y, .w = w[1][matrix_]});
}

}  // namespace megalith
