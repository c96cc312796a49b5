#include "trainer/model/feed_forward.h"

#include "kernels/gelu.h"

namespace megalith {

FeedForward::FeedForward(Declarations& model, const std::string& name, int64_t width, int64_t features, double std,
                         double output_std)
    : width_(width),
      features_(features),
      fc_(model, name + "c_fc", {.in = width, .out = features, .split = Split::rows}, std),
      proj_(model, name + "c_proj", {.in = features, .out = width, .split = Split::columns}, output_std) {}

void FeedForward::allocate(Arena& arena, DType compute, const PassShape& pass, Kept kept, Saved& a) const {
  const Shape shape{pass.branch_rows(), features_ / pass.parts};
  if (a.fc.empty()) a.fc = arena.tensor(compute, shape);
  if (a.act.empty() && kept == Kept::all) a.act = arena.tensor(compute, shape);
}

void FeedForward::forward(const Context& c, const UnitTensors& w, const Saved& a, Tensor x) const {
  fc_.forward_gelu(c, w, a.act, a.fc, x);
}

void FeedForward::recompute(const Context& c, const Saved& a) const { gelu_forward(c.s, a.act, a.fc); }

Tensor FeedForward::output(const Context& c, const UnitTensors& w, const Saved& a) const {
  const Tensor out = c.scratch.tensor(a.act.dtype(), {a.act.rows(), width_});
  proj_.forward(c, w, out, a.act);
  return out;
}

Tensor FeedForward::backward_input(const Context& c, const UnitTensors& w, const Saved& a, const Gradients& g) const {
  const Tensor dx = c.scratch.tensor(g.dout.dtype(), g.dout.shape());
  proj_.backward_input_gelu(c, w, g.dfc, g.dout, a.fc);
  fc_.backward_input(c, w, dx, g.dfc);
  return dx;
}

void FeedForward::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                                  const Gradients& g, Tensor x, bool add) const {
  proj_.backward_weight(c, w, dw, g.dout, a.act, add);
  fc_.backward_weight(c, w, dw, g.dfc, x, add);
}

}  // namespace megalith
