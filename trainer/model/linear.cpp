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
  linear_forward(c.s, y, x, w[weight_], own_bias(w));
}

void Linear::forward_gelu(const Context& c, const UnitTensors& w, Tensor y, Tensor h, Tensor x) const {
  if (!adapter_) return linear_gelu_forward(c.s, y, h, x, w[weight_], own_bias(w));
  forward(c, w, h, x);
  gelu_forward(c.s, y, h);
}

void Linear::backward_input(const Context& c, const UnitTensors& w, Tensor dx, Tensor dy) const {
  if (adapter_) return adapter_.backward_input(c, w, dx, dy);
  linear_backward_input(c.s, dx, dy, w[weight_]);
}

void Linear::backward_input_gelu(const Context& c, const UnitTensors& w, Tensor dh, Tensor dy, Tensor h) const {
  if (!adapter_) return linear_backward_input_gelu(c.s, dh, dy, w[weight_], h);
  backward_input(c, w, dh, dy);
  gelu_backward(c.s, dh, dh, h);
}

void Linear::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, Tensor dy, Tensor x,
                             bool add) const {
  if (adapter_) return adapter_.backward_weight(c, w, dw, dy, x, add);
  if (!dw[weight_].empty())
    linear_backward_weight(c.s, dw[weight_], own_bias(dw), dy, x, add);
  else if (!own_bias(dw).empty())
    linear_backward_bias(c.s, own_bias(dw), dy);
}

}  // namespace megalith
