#include "trainer/model/feed_forward.h"

#include "kernels/gelu.h"
#include "kernels/swiglu.h"

namespace megalith {

FeedForward::FeedForward(Declarations& model, const std::string& name, const ModelConfig& config, double output_std)
    : width_(config.hidden),
      features_(config.features()),
      products_(config.activation == Activation::swiglu ? 2 : 1),
      activation_(config.activation),
      fc_(model, name + "c_fc",
          {.in = width_,
           .out = products_ * features_,
           .split = Split::rows,
           .row_groups = products_ == 1 ? std::vector<RowGroup>{} : std::vector<RowGroup>{{features_}, {features_}},
           .bias = config.bias},
          config.initial_std, config),
      proj_(model, name + "c_proj",
            {.in = features_, .out = width_, .split = Split::columns, .row_groups = {}, .bias = config.bias},
            output_std, config) {}

void FeedForward::allocate(Arena& arena, DType compute, const PassShape& pass, Kept kept, Saved& a) const {
  const int64_t N = pass.branch_rows(), F = features_ / pass.parts;
  if (a.fc.empty()) a.fc = arena.tensor(compute, {N, products_ * F});
  if (kept == Kept::all) allocate_output(arena, compute, pass, a);
}

void FeedForward::allocate_output(Arena& arena, DType compute, const PassShape& pass, Saved& a) const {
  if (a.act.empty()) a.act = arena.tensor(compute, {pass.branch_rows(), features_ / pass.parts});
}

void FeedForward::forward(const Context& c, const UnitTensors& w, const Saved& a, Tensor x) const {
  if (activation_ == Activation::gelu) return fc_.forward_gelu(c, w, a.act, a.fc, x);
  fc_.forward(c, w, a.fc, x);
  recompute(c, a);
}

void FeedForward::recompute(const Context& c, const Saved& a) const {
  switch (activation_) {
    case Activation::gelu: return gelu_forward(c.s, a.act, a.fc);
    case Activation::gelu_erf: return gelu_forward(c.s, a.act, a.fc, GeluForm::erf);
    case Activation::swiglu: return swiglu_forward(c.s, a.act, a.fc);
  }
}

Tensor FeedForward::output(const Context& c, const UnitTensors& w, const Saved& a) const {
  const Tensor out = c.scratch.tensor(a.act.dtype(), {a.act.rows(), width_});
  proj_.forward(c, w, out, a.act);
  return out;
}

Tensor FeedForward::backward_input(const Context& c, const UnitTensors& w, const Saved& a, const Gradients& g) const {
  const Tensor dx = c.scratch.tensor(g.dout.dtype(), g.dout.shape());
  switch (activation_) {
    case Activation::gelu: proj_.backward_input_gelu(c, w, g.dfc, g.dout, a.fc); break;
    case Activation::gelu_erf:
      proj_.backward_input(c, w, g.dfc, g.dout);
      gelu_backward(c.s, g.dfc, g.dfc, a.fc, GeluForm::erf);
      break;
    case Activation::swiglu:
      const Tensor dact = c.scratch.tensor(a.act.dtype(), a.act.shape());
      proj_.backward_input(c, w, dact, g.dout);
      swiglu_backward(c.s, g.dfc, dact, a.fc);
  }
  fc_.backward_input(c, w, dx, g.dfc);
  return dx;
}

void FeedForward::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                                  const Gradients& g, Tensor x, bool add) const {
  proj_.backward_weight(c, w, dw, g.dout, a.act, add);
  fc_.backward_weight(c, w, dw, g.dfc, x, add);
}

}  // namespace megalith
