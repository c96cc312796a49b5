#include "trainer/model/feed_forward.h"

#include "kernels/activation/gelu.h"
#include "kernels/activation/swiglu.h"

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

void FeedForward::forward(const Context& c, const UnitTensors& w, const Saved& a, InPieces x) const {
  if (activation_ == Activation::gelu) return x.each(fc_.forward_gelu(c, w, a.act, a.fc, Linear::factor(c, x)));
  x.each([&, product = fc_.forward(c, w, a.fc, Linear::factor(c, x))](Interval r) {
    product(r);
    activate(c, a.act.rows(r.begin, r.end), a.fc.rows(r.begin, r.end));
  });
}

void FeedForward::recompute(const Context& c, const Saved& a) const { activate(c, a.act, a.fc); }

void FeedForward::activate(const Context& c, Tensor act, Tensor fc) const {
  switch (activation_) {
    case Activation::gelu: return launch(c.s, GeluForward{.y = act, .x = fc});
    case Activation::gelu_erf: return launch(c.s, GeluForward{.y = act, .x = fc, .form = GeluForm::erf});
    case Activation::swiglu: return launch(c.s, SwigluForward{.y = act, .x = fc});
  }
}

void FeedForward::deactivate(const Context& c, Tensor dfc, Tensor dact, Tensor fc) const {
  switch (activation_) {
    case Activation::gelu: return launch(c.s, GeluBackward{.dx = dfc, .dy = dact, .x = fc});
    case Activation::gelu_erf: return launch(c.s, GeluBackward{.dx = dfc, .dy = dact, .x = fc, .form = GeluForm::erf});
    case Activation::swiglu: return launch(c.s, SwigluBackward{.dx = dfc, .dy = dact, .x = fc});
  }
}

InPieces FeedForward::output(const Context& c, const UnitTensors& w, const Saved& a) const {
  const Tensor out = c.scratch.tensor(a.act.dtype(), {a.act.rows(), width_});
  return c.edge.begin_leave(c.s, c.scratch, out, proj_.forward(c, w, out, a.act));
}

InPieces FeedForward::backward_input(const Context& c, const UnitTensors& w, const UnitTensors&, const Saved& a,
                                     const Gradients& g, InPieces dout, Edge::Cut cut) const {
  const Tensor dx = c.scratch.tensor(g.dout.dtype(), g.dout.shape());
  if (activation_ == Activation::gelu) {
    dout.each(proj_.backward_input_gelu(c, w, g.dfc, Linear::factor(c, dout), a.fc));
  } else {
    const Tensor dact = activation_ == Activation::swiglu ? c.scratch.tensor(a.act.dtype(), a.act.shape()) : g.dfc;
    dout.each([&, product = proj_.backward_input(c, w, dact, Linear::factor(c, dout))](Interval r) {
      product(r);
      deactivate(c, g.dfc.rows(r.begin, r.end), dact.rows(r.begin, r.end), a.fc.rows(r.begin, r.end));
    });
  }
  return c.edge.begin_enter_backward(c.s, c.scratch, dx, fc_.backward_input(c, w, dx, g.dfc), cut);
}

void FeedForward::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                                  const Gradients& g, InPieces x, bool add) const {
  proj_.backward_weight(c, w, dw, g.dout, a.act, add);
  fc_.backward_weight(c, w, dw, g.dfc, x.all(), add);
}

}  // namespace megalith
