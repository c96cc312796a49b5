#include "trainer/model/norm.h"

namespace megalith {

Norm::Norm(Declarations& model, const std::string& name, const ModelConfig& config)
    : width_(config.hidden),
      rule_{.centered = config.norm == NormKind::layer, .epsilon = static_cast<float>(config.norm_epsilon)},
      weight_(model.parameter({.name = name + ".weight", .shape = {width_}, .init_value = 1})) {
  if (rule_.centered) bias_ = model.parameter({.name = name + ".bias", .shape = {width_}});
}

void Norm::allocate(Arena& arena, DType compute, int64_t rows, Saved& a) const {
  if (a.stat.empty()) a.stat = arena.tensor(DType::f32, {rows, 2});
  allocate_output(arena, compute, rows, a);
}

void Norm::allocate_output(Arena& arena, DType compute, int64_t rows, Saved& a) const {
  if (a.y.empty()) a.y = arena.tensor(compute, {rows, width_});
}

void Norm::forward(const Context& c, const UnitTensors& w, const Saved& a, Tensor x) const {
  layernorm_forward(c.s, a.y, a.stat, x, w[weight_], w[bias_], rule_);
}

void Norm::backward(const Context& c, const UnitTensors& w, const Saved& a, const UnitTensors& dw, Tensor dx, Tensor dy,
                    Tensor x) const {
  layernorm_backward(c.s, dx, dw[weight_], dw[bias_], dy, x, a.stat, w[weight_], rule_);
}

void Norm::forward_residual(const Context& c, const UnitTensors& w, const Saved& a, Tensor sum, Tensor x,
                            const Branch& branch) const {
  residual_layernorm_forward(c.s, sum, a.y, a.stat, x, branch.h, branch.bias, w[weight_], w[bias_], branch.dropout,
                             rule_);
}

void Norm::backward_residual(const Context& c, const UnitTensors& w, const Saved& a, const UnitTensors& dw, Tensor dx,
                             const Branch& d, Tensor dy, Tensor sum) const {
  residual_layernorm_backward(c.s, dx, d.h, d.bias, dw[weight_], dw[bias_], dy, sum, a.stat, w[weight_], d.dropout,
                              rule_);
}

}  // namespace megalith
