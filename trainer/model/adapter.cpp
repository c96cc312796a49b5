#include "trainer/model/adapter.h"

#include <cmath>

#include "configs/adapter.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"

namespace megalith {

namespace {

// Returns the groups of rows that have adapters, each with one of its own or, if the layer is one module, together.
struct Adapted {
  AdaptedRows rows{};
  std::vector<int64_t> groups{};  // those of B, as the layer's
};
Adapted adapted(const std::string& name, const Adapter::Layer& layer, const ModelConfig& config) {
  const std::string linear = name.substr(name.find('.', name.find('.') + 1) + 1);  // behind "h.0."
  const std::vector<int64_t> groups = layer.row_groups.empty() ? std::vector{layer.out} : layer.row_groups;
  int64_t modules = 0;
  for (const AdapterModule& module : adapter_modules(config)) modules += module.linear == linear ? 1 : 0;
  Adapted all;
  for (const AdapterModule& module : adapted_modules(config)) {
    if (module.linear != linear) continue;
    CHECK(modules == 1 || modules == std::ssize(groups), "{} has {} groups of rows and {} modules", name,
          groups.size(), modules);
    AdaptedRows::Part part{0, layer.out};
    if (modules == 1) {
      all.groups = groups;
    } else {
      for (int64_t g = 0; g < module.part; g++) part.first += groups[static_cast<size_t>(g)];
      part.rows = groups[static_cast<size_t>(module.part)];
      all.groups.push_back(part.rows);
    }
    all.rows.parts[static_cast<size_t>(all.rows.count++)] = part;
  }
  return all;
}

}  // namespace

Adapter::Adapter(Declarations& model, const std::string& name, const Layer& layer, const ModelConfig& config)
    : split_(layer.split) {
  const Adapted here = adapted(name, layer, config);
  if (here.rows.count == 0) return;
  rows_ = here.rows;
  scale_ = config.adapter.scale();
  const bool by_columns = split_ == Split::columns;
  a_ = model.parameter({.name = name + std::string(adapter_a),
                        .shape = {rows_.count * config.adapter.inner(), layer.in},
                        .init_std = 1 / std::sqrt(3.0 * static_cast<double>(layer.in)),
                        .decay = true,
                        .multiplies = true,
                        .split = by_columns ? Split::columns : Split::none,
                        .of_heads = !by_columns});
  b_ = model.parameter({.name = name + std::string(adapter_b),
                        .shape = {rows_.rows(), config.adapter.inner()},
                        .decay = true,
                        .multiplies = true,
                        .split = by_columns ? Split::none : Split::rows,
                        .of_heads = by_columns,
                        .row_groups = by_columns ? std::vector<int64_t>{} : here.groups});
  site_ = model.dropout_site();
}

// Every group of rows is split evenly.
AdaptedRows Adapter::rows(const PassShape& pass) const {
  AdaptedRows here = rows_;
  if (split_ == Split::rows)
    for (AdaptedRows::Part& part : here.parts) part = {part.first / pass.parts, part.rows / pass.parts};
  return here;
}

// The branch has all rows of the microbatch.
Dropout Adapter::dropout(const Context& c, int64_t columns) const {
  Dropout d = c.dropout_at(site_);
  d.p = c.adapter_dropout;
  d.first_row -= c.pass.first_row;
  if (split_ == Split::columns) d.first_column = c.pass.part * columns;
  return d;
}

Tensor Adapter::dropped(const Context& c, Tensor x) const {
  const Dropout d = dropout(c, x.cols());
  if (!d.active()) return x;
  const Tensor y = c.scratch.tensor(x.dtype(), x.shape());
  megalith::dropout(c.s, y, x, d);
  return y;
}

Tensor Adapter::inner(const Context& c, const UnitTensors& w, Tensor x) const {
  const Tensor h = c.scratch.tensor(x.dtype(), {x.rows(), w[a_].rows()});
  linear_forward(c.s, h, x, w[a_], {});
  return h;
}

Tensor Adapter::wide(const Context& c, const UnitTensors& w, int64_t outputs) const {
  const Tensor b = c.scratch.tensor(w[b_].dtype(), {outputs, w[a_].rows()});
  spread_adapter(c.s, b, w[b_], rows(c.pass), scale_);
  return b;
}

Tensor Adapter::inner_gradient(const Context& c, const UnitTensors& w, Tensor dy) const {
  const Tensor dh = c.scratch.tensor(dy.dtype(), {dy.rows(), w[a_].rows()});
  linear_backward_input(c.s, dh, dy, wide(c, w, dy.cols()));
  return dh;
}

void Adapter::forward(const Context& c, const UnitTensors& w, Tensor y, Tensor x) const {
  const auto scope = c.scratch.scope();
  const Tensor more = c.scratch.tensor(y.dtype(), {y.rows(), y.cols()});
  linear_forward(c.s, more, inner(c, w, dropped(c, x)), wide(c, w, y.cols()), {});
  add(c.s, y, more);
}

void Adapter::backward_input(const Context& c, const UnitTensors& w, Tensor dx, Tensor dy) const {
  const auto scope = c.scratch.scope();
  const Tensor more = c.scratch.tensor(dx.dtype(), {dx.rows(), dx.cols()});
  linear_backward_input(c.s, more, inner_gradient(c, w, dy), w[a_]);
  if (const Dropout d = dropout(c, dx.cols()); d.active()) megalith::dropout(c.s, more, more, d);
  add(c.s, dx, more);
}

// What A makes of the input is made again, so that no pass keeps it.
void Adapter::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, Tensor dy, Tensor x,
                              bool add) const {
  const auto scope = c.scratch.scope();
  const Tensor input = dropped(c, x), h = inner(c, w, input);
  const Tensor dwide = c.scratch.tensor(DType::f32, {dy.cols(), h.cols()});
  linear_backward_weight(c.s, dwide, {}, dy, h, false);
  collect_adapter(c.s, dw[b_], dwide, rows(c.pass), scale_, add);
  linear_backward_weight(c.s, dw[a_], {}, inner_gradient(c, w, dy), input, add);
}

}  // namespace megalith
