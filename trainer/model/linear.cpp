#include "trainer/model/linear.h"

#include "kernels/activation/gelu.h"
#include "kernels/linear/linear.h"

namespace megalith {

Linear::Linear(Declarations& model, const std::string& name, const Shape& shape, double std, const ModelConfig& config)
    : weight_(model.parameter({.name = name + ".weight",
                               .shape = {shape.out, shape.in},
                               .init_std = std,
                               .decay = true,
                               .multiplies = true,
                               .split = shape.split,
                               .row_groups = shape.row_groups,
                               .stored_transposed = true})),
      bias_in_residual_(shape.split == Split::columns) {
  if (shape.bias)
    bias_ = model.parameter({.name = name + ".bias",
                             .shape = {shape.out},
                             .split = shape.split == Split::rows ? Split::rows : Split::none,
                             .row_groups = shape.row_groups});
  adapter_ = Adapter(model, name, {shape.in, shape.out, shape.split, shape.row_groups}, config);
}

Linear::Product Linear::forward(const Context& c, const UnitTensors& w, Tensor y, Tensor x) const {
  return [=, this, &c, &w](Interval r) {
    const Tensor to = y.rows(r.begin, r.end), from = x.rows(r.begin, r.end);
    launch(c.s, LinearForward{.y = to, .x = from, .w = w[weight_], .b = own_bias(w)});
    if (adapter_) adapter_.add(c.from_row(r.begin), w, to, from);
  };
}

Linear::Product Linear::forward_gelu(const Context& c, const UnitTensors& w, Tensor y, Tensor h, Tensor x) const {
  const auto fused = [=, this, &c, &w](Interval r) {
    launch(c.s, LinearGeluForward{.y = y.rows(r.begin, r.end),
                                  .h = h.rows(r.begin, r.end),
                                  .x = x.rows(r.begin, r.end),
                                  .w = w[weight_],
                                  .b = own_bias(w)});
  };
  if (!adapter_) return fused;
  return [=, &c, product = forward(c, w, h, x)](Interval r) {
    product(r);
    launch(c.s, GeluForward{.y = y.rows(r.begin, r.end), .x = h.rows(r.begin, r.end)});
  };
}

Linear::Product Linear::backward_input(const Context& c, const UnitTensors& w, Tensor dx, Tensor dy) const {
  return [=, this, &c, &w](Interval r) {
    const Tensor to = dx.rows(r.begin, r.end), from = dy.rows(r.begin, r.end);
    launch(c.s, LinearBackwardInput{.dx = to, .dy = from, .w = w[weight_]});
    if (adapter_) adapter_.add_backward_input(c.from_row(r.begin), w, to, from);
  };
}

Linear::Product Linear::backward_input_gelu(const Context& c, const UnitTensors& w, Tensor dh, Tensor dy,
                                            Tensor h) const {
  const auto fused = [=, this, &c, &w](Interval r) {
    launch(c.s, LinearBackwardInputGelu{.dh = dh.rows(r.begin, r.end),
                                        .dy = dy.rows(r.begin, r.end),
                                        .w = w[weight_],
                                        .h = h.rows(r.begin, r.end)});
  };
  if (!adapter_) return fused;
  return [=, &c, product = backward_input(c, w, dh, dy)](Interval r) {
    product(r);
    const Tensor rows = dh.rows(r.begin, r.end);
    launch(c.s, GeluBackward{.dx = rows, .dy = rows, .x = h.rows(r.begin, r.end)});
  };
}

void Linear::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, Tensor dy, Tensor x,
                             bool add) const {
  if (!dw[weight_].empty())
    launch(c.s, LinearBackwardWeight{.dw = dw[weight_], .db = own_bias(dw), .dy = dy, .x = x, .add = add});
  else if (!own_bias(dw).empty())
    launch(c.s, LinearBackwardBias{.db = own_bias(dw), .dy = dy});
  if (adapter_) adapter_.backward_weight(c, w, dw, dy, x, add);
}

}  // namespace megalith
