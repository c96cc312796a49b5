#include "trainer/model/head.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/layernorm.h"
#include "kernels/linear.h"

namespace megalith {

namespace {
// The final norm, in scratch until the caller's scope ends.
struct Normed {
  Tensor ln, stat;
  Normed(const Context& c, const HeadWeights& w, Tensor x)
      : ln(c.scratch.tensor(x.dtype(), x.shape())), stat(c.scratch.tensor(DType::f32, {x.rows(), 2})) {
    layernorm_forward(c.s, ln, stat, x, w.ln_w, w.ln_b);
  }
};
}  // namespace

// Calls use(begin, end, z) for the logits z of rows [begin, end) of h, a chunk at a time.
template <class Use>
void Head::in_chunks(const Context& c, Tensor h, Tensor wte, Use use) const {
  for (int64_t begin = 0; begin < N_; begin += rows_) {
    const auto scope = c.scratch.scope();
    const int64_t end = std::min(N_, begin + rows_);
    const Tensor z = c.scratch.tensor(h.dtype(), {end - begin, columns_});
    linear_forward(c.s, z, h.rows(begin, end), wte, {});
    use(begin, end, z);
  }
}

void Head::loss(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, Tensor losses) const {
  const auto scope = c.scratch.scope();
  const Normed norm(c, w, x);
  in_chunks(c, c.edge.enter(c.s, c.scratch, norm.ln), w.wte, [&](int64_t begin, int64_t end, const Tensor& z) {
    c.edge.loss(c.s, c.scratch, losses.flat(begin, end), z, targets.flat(begin, end));
  });
}

void Head::loss_and_gradient(const Context& c, const HeadWeights& w, Tensor x, Tensor targets,
                             const GradientScale& scale, Tensor losses, Tensor dx, const HeadWeights& dw,
                             bool add) const {
  const auto scope = c.scratch.scope();
  const Tensor dh = c.scratch.tensor(x.dtype(), {N_, x.cols()});
  const Normed norm(c, w, x);
  const Tensor h = c.edge.enter(c.s, c.scratch, norm.ln);
  in_chunks(c, h, w.wte, [&](int64_t begin, int64_t end, const Tensor& z) {  // which becomes its own gradient
    c.edge.loss_and_gradient(c.s, c.scratch, losses.flat(begin, end), z, targets.flat(begin, end), scale);
    linear_backward_weight(c.s, dw.wte, {}, z, h.rows(begin, end), add || begin > 0);
    linear_backward_input(c.s, dh.rows(begin, end), z, w.wte);
  });
  fill(c.s, dx, 0);
  layernorm_backward(c.s, dx, dw.ln_w, dw.ln_b, c.edge.enter_backward(c.s, c.scratch, dh), x, norm.stat, w.ln_w);
}

void Head::softmax(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, Tensor stats) const {
  const auto scope = c.scratch.scope();
  const Normed norm(c, w, x);
  in_chunks(c, c.edge.enter(c.s, c.scratch, norm.ln), w.wte, [&](int64_t begin, int64_t end, const Tensor& z) {
    const int64_t n = end - begin;
    const Tensor of_chunk = c.scratch.tensor(DType::f32, {3, n});
    c.edge.softmax(c.s, c.scratch, of_chunk, z, targets.flat(begin, end));
    for (int64_t i = 0; i < 3; i++)
      copy(c.s, stats.flat(i * N_ + begin, i * N_ + end), of_chunk.flat(i * n, (i + 1) * n));
  });
}

void Head::logits(const Context& c, const HeadWeights& w, Tensor x, Tensor logits) const {
  const auto scope = c.scratch.scope();
  linear_forward(c.s, logits, Normed(c, w, x).ln, w.wte, {});
}

}  // namespace megalith
