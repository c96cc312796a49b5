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
  adapter_ = Adapter(model, name,
                     {weight_, bias_in_residual_ ? Param{} : bias_, shape.in, shape.out, shape.split, shape.row_groups},
                     config);
}

void Linear::forward(const Context& c, const UnitTensors& w, Tensor y, Tensor x) const {
  if (adapter_) return adapter_.forward(c, w, y, x);
  launch(c.s, LinearForward{.y = y, .x = x, .w = w[weight_], .b = own_bias(w)});
}

void Linear::forward_gelu(const Context& c, const UnitTensors& w, Tensor y, Tensor h, Tensor x) const {
  if (!adapter_) return launch(c.s, LinearGeluForward{.y = y, .h = h, .x = x, .w = w[weight_], .b = own_bias(w)});
  forward(c, w, h, x);
  launch(c.s, GeluForward{.y = y, .x = h});
}

void Linear::backward_input(const Context& c, const UnitTensors& w, Tensor dx, Tensor dy) const {
  if (adapter_) return adapter_.backward_input(c, w, dx, dy);
  launch(c.s, LinearBackwardInput{.dx = dx, .dy = dy, .w = w[weight_]});
}

void Linear::backward_input_gelu(const Context& c, const UnitTensors& w, Tensor dh, Tensor dy, Tensor h) const {
  if (!adapter_) return launch(c.s, LinearBackwardInputGelu{.dh = dh, .dy = dy, .w = w[weight_], .h = h});
  backward_input(c, w, dh, dy);
  launch(c.s, GeluBackward{.dx = dh, .dy = dh, .x = h});
}

void Linear::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, Tensor dy, Tensor x,
                             bool add) const {
  if (adapter_) return adapter_.backward_weight(c, w, dw, dy, x, add);
  if (!dw[weight_].empty())
    launch(c.s, LinearBackwardWeight{.dw = dw[weight_], .db = own_bias(dw), .dy = dy, .x = x, .add = add});
  else if (!own_bias(dw).empty())
    launch(c.s, LinearBackwardBias{.db = own_bias(dw), .dy = dy});
}

}  // namespace megalith
