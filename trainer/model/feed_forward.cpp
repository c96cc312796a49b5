#include "trainer/model/feed_forward.h"

#include "kernels/activation/gelu.h"
#include "kernels/activation/swiglu.h"

namespace megalith {

namespace {
GeluForm gelu_form(Activation activation) {
  return activation == Activation::gelu_erf ? GeluForm::erf : GeluForm::tanh;
}
}  // namespace

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
  const Tensor rows = Linear::factor(c, x);
  if (activation_ == Activation::gelu && fc_.fuses_gelu(c)) return x.each(fc_.forward_gelu(c, w, a.act, a.fc, rows));
  x.each([&, product = fc_.forward(c, w, a.fc, {rows, a.scales.first})](Interval r) {
    product(r);
    activate(c, a, r);
  });
}

void FeedForward::recompute(const Context& c, const Saved& a) const { activate(c, a, {0, a.fc.rows()}); }

void FeedForward::activate(const Context& c, const Saved& a, Interval rows) const {
  const Tensor act = a.act.rows(rows.begin, rows.end), fc = a.fc.rows(rows.begin, rows.end);
  const Largest largest = c.largest(a.scales.second, rows.begin, rows.size());
  if (activation_ == Activation::swiglu) return launch(c.s, SwigluForward{.y = act, .x = fc, .largest = largest});
  launch(c.s, GeluForward{.y = act, .x = fc, .form = gelu_form(activation_), .largest = largest});
}

void FeedForward::deactivate(const Context& c, const Saved& a, const Gradients& g, Tensor dact, Interval rows) const {
  const auto of = [=](const Tensor& t) { return t.rows(rows.begin, rows.end); };
  const Largest largest = c.largest(g.scales.second, rows.begin, rows.size());
  if (activation_ == Activation::swiglu)
    return launch(c.s, SwigluBackward{.dx = of(g.dfc), .dy = of(dact), .x = of(a.fc), .largest = largest});
  launch(c.s, GeluBackward{
                  .dx = of(g.dfc), .dy = of(dact), .x = of(a.fc), .form = gelu_form(activation_), .largest = largest});
}

InPieces FeedForward::output(const Context& c, const UnitTensors& w, const Saved& a) const {
  const Tensor out = c.scratch.tensor(a.act.dtype(), {a.act.rows(), width_});
  return c.edge.begin_leave(c.s, c.scratch, out, proj_.forward(c, w, out, {a.act, a.scales.second}));
}

void FeedForward::allocate_transposed(Arena& arena, const UnitTensors& dw, Gradients& g) const {
  g.dout_transposed = proj_.allocate_transposed(arena, dw, g.dout);
  g.dfc_transposed = fc_.allocate_transposed(arena, dw, g.dfc);
}

InPieces FeedForward::backward_input(const Context& c, const UnitTensors& w, const UnitTensors&, const Saved& a,
                                     const Gradients& g, InPieces dout, Edge::Cut cut) const {
  const Tensor dx = c.scratch.tensor(g.dout.dtype(), g.dout.shape());
  const Tensor rows = Linear::factor(c, dout);
  if (activation_ == Activation::gelu && proj_.fuses_gelu(c)) {
    dout.each(proj_.backward_input_gelu(c, w, g.dfc, rows, a.fc));
  } else {
    const Tensor dact = activation_ == Activation::swiglu ? c.scratch.tensor(a.act.dtype(), a.act.shape()) : g.dfc;
    dout.each([&, product = proj_.backward_input(c, w, dact, {rows, g.scales.first, g.dout_transposed})](Interval r) {
      product(r);
      deactivate(c, a, g, dact, r);
    });
  }
  return c.edge.begin_enter_backward(c.s, c.scratch, dx,
                                     fc_.backward_input(c, w, dx, {g.dfc, g.scales.second, g.dfc_transposed}), cut);
}

void FeedForward::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                                  const Gradients& g, InPieces x, bool add) const {
  proj_.backward_weight(c, w, dw, {g.dout, g.scales.first, g.dout_transposed}, {a.act, a.scales.second}, add);
  fc_.backward_weight(c, w, dw, {g.dfc, g.scales.second, g.dfc_transposed}, {x.all(), a.scales.first}, add);
}

}  // namespace megalith
