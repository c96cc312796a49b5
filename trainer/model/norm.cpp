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

Tensor Norm::forward(const Context& c, const UnitTensors& w, const Saved& a, Tensor x, const Largest& largest) const {
  launch(c.s, LayerNormForward{
                  .y = a.y, .stat = a.stat, .x = x, .w = w[weight_], .b = w[bias_], .rule = rule_, .largest = largest});
  return a.y;
}

void Norm::backward(const Context& c, const UnitTensors& w, const Saved& a, const UnitTensors& dw, Tensor dx, Tensor dy,
                    Tensor x) const {
  launch(c.s, LayerNormBackward{.dx = dx,
                                .dw = dw[weight_],
                                .db = dw[bias_],
                                .dy = dy,
                                .x = x,
                                .stat = a.stat,
                                .w = w[weight_],
                                .rule = rule_});
}

void Norm::forward_residual(const Context& c, const UnitTensors& w, const Saved& a, Tensor sum, Tensor x,
                            const Branch& branch, const Largest& largest) const {
  launch(c.s, ResidualLayerNormForward{.y = sum,
                                       .ln = a.y,
                                       .stat = a.stat,
                                       .x = x,
                                       .h = branch.h,
                                       .h_b = branch.bias,
                                       .w = w[weight_],
                                       .b = w[bias_],
                                       .dropout = branch.dropout,
                                       .rule = rule_,
                                       .largest = largest});
}

void Norm::backward_residual(const Context& c, const UnitTensors& w, const Saved& a, const UnitTensors& dw, Tensor dx,
                             const Branch& d, Tensor dy, Tensor sum) const {
  launch(c.s, ResidualLayerNormBackward{.dx = dx,
                                        .dh = d.h,
                                        .dh_b = d.bias,
                                        .dw = dw[weight_],
                                        .db = dw[bias_],
                                        .dln = dy,
                                        .y = sum,
                                        .stat = a.stat,
                                        .w = w[weight_],
                                        .dropout = d.dropout,
                                        .rule = rule_});
}

}  // namespace megalith
