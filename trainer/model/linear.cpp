#include "trainer/model/linear.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/fp8.h"
#include "kernels/linear/linear.h"

namespace megalith {

Linear::Linear(Declarations& model, const std::string& name, const Shape& shape, double std, const ModelConfig& config)
    : weight_(model.parameter({.name = name + ".weight",
                               .shape = {shape.out, shape.in},
                               .init_std = std,
                               .decay = true,
                               .multiplies = true,
                               .fp8 = true,
                               .split = shape.split,
                               .row_groups = shape.row_groups,
                               .stored_transposed = true})),
      split_(shape.split),
      bias_in_residual_(shape.split == Split::columns) {
  if (shape.bias)
    bias_ = model.parameter({.name = name + ".bias",
                             .shape = {shape.out},
                             .split = shape.split == Split::rows ? Split::rows : Split::none,
                             .row_groups = shape.row_groups});
  adapter_ = Adapter(model, name, {shape.in, shape.out, shape.split, shape.row_groups}, config);
}

Linear::Factor Linear::cast(const Context& c, const Measured& x, Interval rows, DType type, Form form) {
  const Tensor from = x.rows.rows(rows.begin, rows.end);
  const bool straight = form == Form::straight;
  const megalith::Shape shape =
      straight ? megalith::Shape{from.rows(), from.cols()} : megalith::Shape{from.cols(), from.rows()};
  const Tensor values = c.scratch.tensor(type, shape);
  launch(c.s, CastToFp8{.y = straight ? values : Tensor{},
                        .transposed = straight ? x.transposed : values,
                        .unscale = x.scale.unscale,
                        .x = from,
                        .amax = x.scale.amax});
  return {values, x.scale.unscale};
}

Linear::Factor Linear::cast_weight(const Context& c, const UnitTensors& w, Form form) const {
  const Tensor weight = w[weight_];
  if (!is_8_bit(weight.dtype())) {
    const Tensor scale = c.scratch.tensor(DType::f32, {2});
    const Measured measured{weight, {scale.flat(0, 1), scale.flat(1, 2)}};
    launch(c.s, Fill{.y = scale, .value = 0});
    launch(c.s, LargestMagnitude{.amax = measured.scale.amax, .x = weight});
    take_scale(c, measured);
    return cast(c, measured, {0, weight.rows()}, DType::e4m3, form);
  }
  if (form == Form::straight) return {weight, w.unscale(weight_)};
  const Tensor transposed = c.scratch.tensor(weight.dtype(), {weight.cols(), weight.rows()});
  launch(c.s, TransposeFp8{.y = transposed, .x = weight});
  return {transposed, w.unscale(weight_)};
}

// Without a transpose, rows are cast when they are multiplied, and their memory is free again.
Linear::Product Linear::fp8_product(const Context& c, Tensor y, const Measured& x, DType type, const Factor& b,
                                    Tensor bias) {
  take_scale(c, x);
  Factor whole;
  if (!x.transposed.empty()) whole = cast(c, x, {0, x.rows.rows()}, type, Form::straight);
  return [=, &c](Interval r) {
    const auto scope = c.scratch.scope();
    const Tensor rows =
        whole.values.empty() ? cast(c, x, r, type, Form::straight).values : whole.values.rows(r.begin, r.end);
    launch(c.s, Fp8Product{.y = y.rows(r.begin, r.end),
                           .a = rows,
                           .b = b.values,
                           .a_unscale = x.scale.unscale,
                           .b_unscale = b.unscale,
                           .bias = bias});
  };
}

Linear::Product Linear::forward(const Context& c, const UnitTensors& w, Tensor y, const Measured& measured) const {
  const Tensor x = measured.rows;
  Product product = [=, this, &c, &w](Interval r) {
    launch(c.s,
           LinearForward{.y = y.rows(r.begin, r.end), .x = x.rows(r.begin, r.end), .w = w[weight_], .b = own_bias(w)});
  };
  if (c.fp8) product = fp8_product(c, y, measured, DType::e4m3, cast_weight(c, w, Form::straight), own_bias(w));
  if (!adapter_) return product;
  return [=, this, &c, &w](Interval r) {
    product(r);
    adapter_.add(c.from_row(r.begin), w, y.rows(r.begin, r.end), x.rows(r.begin, r.end));
  };
}

Linear::Product Linear::forward_gelu(const Context& c, const UnitTensors& w, Tensor y, Tensor h, Tensor x) const {
  return [=, this, &c, &w](Interval r) {
    launch(c.s, LinearGeluForward{.y = y.rows(r.begin, r.end),
                                  .h = h.rows(r.begin, r.end),
                                  .x = x.rows(r.begin, r.end),
                                  .w = w[weight_],
                                  .b = own_bias(w)});
  };
}

Linear::Product Linear::backward_input(const Context& c, const UnitTensors& w, Tensor dx,
                                       const Measured& measured) const {
  const Tensor dy = measured.rows;
  Product product = [=, this, &c, &w](Interval r) {
    launch(c.s, LinearBackwardInput{.dx = dx.rows(r.begin, r.end), .dy = dy.rows(r.begin, r.end), .w = w[weight_]});
  };
  if (c.fp8) product = fp8_product(c, dx, measured, DType::e5m2, cast_weight(c, w, Form::transposed), {});
  if (!adapter_) return product;
  return [=, this, &c, &w](Interval r) {
    product(r);
    adapter_.add_backward_input(c.from_row(r.begin), w, dx.rows(r.begin, r.end), dy.rows(r.begin, r.end));
  };
}

Linear::Product Linear::backward_input_gelu(const Context& c, const UnitTensors& w, Tensor dh, Tensor dy,
                                            Tensor h) const {
  return [=, this, &c, &w](Interval r) {
    launch(c.s, LinearBackwardInputGelu{.dh = dh.rows(r.begin, r.end),
                                        .dy = dy.rows(r.begin, r.end),
                                        .w = w[weight_],
                                        .h = h.rows(r.begin, r.end)});
  };
}

void Linear::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Measured& dy,
                             const Measured& x, bool add) const {
  const Tensor of_weight = dw[weight_], of_bias = own_bias(dw);
  if (!of_weight.empty() && !c.fp8)
    launch(c.s, LinearBackwardWeight{.dw = of_weight, .db = of_bias, .dy = dy.rows, .x = x.rows, .add = add});
  else if (!of_bias.empty())
    launch(c.s, LinearBackwardBias{.db = of_bias, .dy = dy.rows});
  if (!of_weight.empty() && c.fp8) {
    const auto scope = c.scratch.scope();
    const auto transposed = [&](const Measured& m, DType type) {
      if (!m.transposed.empty()) return Factor{m.transposed, m.scale.unscale};
      take_scale(c, m);
      return cast(c, m, {0, m.rows.rows()}, type, Form::transposed);
    };
    const Factor a = transposed(dy, DType::e5m2), b = transposed(x, DType::e4m3);
    launch(
        c.s,
        Fp8Product{
            .y = of_weight, .a = a.values, .b = b.values, .a_unscale = a.unscale, .b_unscale = b.unscale, .add = add});
  }
  if (adapter_) adapter_.backward_weight(c, w, dw, dy.rows, x.rows, add);
}

}  // namespace megalith
