#include "trainer/model/head.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/layernorm.h"
#include "kernels/linear.h"

namespace megalith {

Head::Head(int64_t N, int64_t columns, int64_t chunks) : N_(N), columns_(columns) {
  constexpr int64_t elements = int64_t{1} << 25;
  rows_ = chunks > 0 ? (N + chunks - 1) / chunks : std::clamp<int64_t>(elements / columns, 1, N);
}

void Head::loss(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, Tensor losses) const {
  const auto scope = c.scratch.scope();
  const Tensor ln = c.scratch.tensor(x.dtype(), x.shape()), stat = c.scratch.tensor(DType::f32, {x.rows(), 2});
  layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  const Tensor h = c.edge.enter(c.s, c.scratch, ln);
  for (int64_t begin = 0; begin < N_; begin += rows_) {
    const auto chunk_scope = c.scratch.scope();
    const int64_t end = std::min(N_, begin + rows_);
    const Tensor z = c.scratch.tensor(x.dtype(), {end - begin, columns_});
    linear_forward(c.s, z, h.rows(begin, end), w.wte, {});
    c.edge.loss(c.s, c.scratch, losses.flat(begin, end), z, targets.flat(begin, end));
  }
}

void Head::loss_and_gradient(const Context& c, const HeadWeights& w, Tensor x, Tensor targets,
                             const GradientScale& scale, Tensor losses, Tensor dx, const HeadWeights& dw) const {
  const auto scope = c.scratch.scope();
  const Tensor ln = c.scratch.tensor(x.dtype(), x.shape()), stat = c.scratch.tensor(DType::f32, {x.rows(), 2});
  const Tensor dh = c.scratch.tensor(x.dtype(), {N_, x.cols()});
  layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  const Tensor h = c.edge.enter(c.s, c.scratch, ln);
  for (int64_t begin = 0; begin < N_; begin += rows_) {
    const auto chunk_scope = c.scratch.scope();
    const int64_t end = std::min(N_, begin + rows_);
    const Tensor z = c.scratch.tensor(x.dtype(), {end - begin, columns_});  // logits, then their gradient
    linear_forward(c.s, z, h.rows(begin, end), w.wte, {});
    c.edge.loss_and_gradient(c.s, c.scratch, losses.flat(begin, end), z, targets.flat(begin, end), scale);
    linear_backward_weight(c.s, dw.wte, {}, z, h.rows(begin, end));
    linear_backward_input(c.s, dh.rows(begin, end), z, w.wte);
  }
  fill(c.s, dx, 0);
  layernorm_backward(c.s, dx, dw.ln_w, dw.ln_b, c.edge.enter_backward(c.s, c.scratch, dh), x, stat, w.ln_w);
}

void Head::softmax(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, Tensor stats) const {
  const auto scope = c.scratch.scope();
  const Tensor ln = c.scratch.tensor(x.dtype(), x.shape()), stat = c.scratch.tensor(DType::f32, {x.rows(), 2});
  layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  const Tensor h = c.edge.enter(c.s, c.scratch, ln);
  for (int64_t begin = 0; begin < N_; begin += rows_) {
    const auto chunk_scope = c.scratch.scope();
    const int64_t end = std::min(N_, begin + rows_), n = end - begin;
    const Tensor z = c.scratch.tensor(x.dtype(), {n, columns_}), of_chunk = c.scratch.tensor(DType::f32, {3, n});
    linear_forward(c.s, z, h.rows(begin, end), w.wte, {});
    c.edge.softmax(c.s, c.scratch, of_chunk, z, targets.flat(begin, end));
    for (int64_t i = 0; i < 3; i++)
      copy(c.s, stats.flat(i * N_ + begin, i * N_ + end), of_chunk.flat(i * n, (i + 1) * n));
  }
}

void Head::logits(const Context& c, const HeadWeights& w, Tensor x, Tensor logits) const {
  const auto scope = c.scratch.scope();
  const Tensor ln = c.scratch.tensor(x.dtype(), x.shape()), stat = c.scratch.tensor(DType::f32, {x.rows(), 2});
  layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  linear_forward(c.s, logits, ln, w.wte, {});
}

}  // namespace megalith
