#include "trainer/model/head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/layernorm.h"
#include "kernels/linear.h"

namespace megalith {

HeadWeights HeadWeights::bind(std::span<const Tensor> norm, Tensor wte) {
  CHECK(norm.size() == 2, "the final norm has 2 parameters, not {}", norm.size());
  return {norm[0], norm[1], wte};
}

Head::Head(int64_t N, int64_t V, int64_t chunks) : V_(V) {
  constexpr int64_t elements = int64_t{1} << 25;
  rows_ = chunks > 0 ? (N + chunks - 1) / chunks : std::clamp<int64_t>(elements / V, 1, N);
}

void Head::loss(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, Tensor losses) const {
  const auto scope = c.scratch.scope();
  const int64_t N = x.rows();
  const Tensor ln = c.scratch.tensor(x.dtype(), x.shape()), stat = c.scratch.tensor(DType::f32, {N, 2});
  layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  for (int64_t begin = 0; begin < N; begin += rows_) {
    const auto chunk_scope = c.scratch.scope();
    const int64_t end = std::min(N, begin + rows_);
    const Tensor z = c.scratch.tensor(x.dtype(), {end - begin, V_});
    linear_forward(c.s, z, ln.rows(begin, end), w.wte, {});
    cross_entropy_forward(c.s, losses.flat(begin, end), z, targets.flat(begin, end), whole_vocabulary(V_));
  }
}

void Head::loss_and_gradient(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, double scale,
                             Tensor losses, Tensor dx, const HeadWeights& dw) const {
  const auto scope = c.scratch.scope();
  const int64_t N = x.rows();
  const Tensor ln = c.scratch.tensor(x.dtype(), x.shape()), stat = c.scratch.tensor(DType::f32, {N, 2});
  const Tensor dln = c.scratch.tensor(x.dtype(), x.shape());
  layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  for (int64_t begin = 0; begin < N; begin += rows_) {
    const auto chunk_scope = c.scratch.scope();
    const int64_t end = std::min(N, begin + rows_);
    const Tensor z = c.scratch.tensor(x.dtype(), {end - begin, V_});  // logits, then their gradient
    linear_forward(c.s, z, ln.rows(begin, end), w.wte, {});
    cross_entropy_forward_backward(c.s, losses.flat(begin, end), z, targets.flat(begin, end), whole_vocabulary(V_),
                                   scale);
    linear_backward_weight(c.s, dw.wte, {}, z, ln.rows(begin, end));
    linear_backward_input(c.s, dln.rows(begin, end), z, w.wte);
  }
  fill(c.s, dx, 0);
  layernorm_backward(c.s, dx, dw.ln_w, dw.ln_b, dln, x, stat, w.ln_w);
}

void Head::logits(const Context& c, const HeadWeights& w, Tensor x, Tensor logits) const {
  const auto scope = c.scratch.scope();
  const Tensor ln = c.scratch.tensor(x.dtype(), x.shape()), stat = c.scratch.tensor(DType::f32, {x.rows(), 2});
  layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  linear_forward(c.s, logits, ln, w.wte, {});
}

}  // namespace megalith
