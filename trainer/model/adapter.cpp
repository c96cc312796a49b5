#include "trainer/model/adapter.h"

#include <cmath>

#include "configs/adapter.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"

namespace megalith {

namespace {

// Returns the groups of rows of the layer that have separate adapters or, if the layer is one module, share one.
std::vector<Interval> adapted_groups(const std::string& name, int64_t groups, const ModelConfig& config) {
  const std::string linear = name.substr(name.find('.', name.find('.') + 1) + 1);  // after "h.0."
  int64_t modules = 0;
  for (const AdapterModule& module : adapter_modules(config)) modules += module.linear == linear ? 1 : 0;
  std::vector<Interval> adapted;
  for (const AdapterModule& module : adapted_modules(config)) {
    if (module.linear != linear) continue;
    CHECK(modules == 1 || modules == groups, "{} has {} groups of rows and {} modules", name, groups, modules);
    adapted.push_back(modules == 1 ? Interval{0, groups} : Interval{module.part, module.part + 1});
  }
  return adapted;
}

}  // namespace

Adapter::Adapter(Declarations& model, const std::string& name, const Layer& layer, const ModelConfig& config)
    : layer_(layer) {
  std::vector<RowGroup>& all = layer_.row_groups;
  if (all.empty()) all.push_back({layer.out});
  adapted_ = adapted_groups(name, std::ssize(all), config);
  if (adapted_.empty()) return;
  const AdaptedRows whole = rows(1);
  std::vector<RowGroup> groups;
  for (const Interval& own : adapted_) groups.insert(groups.end(), all.begin() + own.begin, all.begin() + own.end);
  scale_ = config.adapter.scale();
  const bool by_columns = layer_.split == Split::columns;
  a_ = model.parameter({.name = name + std::string(adapter_a),
                        .shape = {whole.count * config.adapter.inner(), layer.in},
                        .init_std = 1 / std::sqrt(3.0 * static_cast<double>(layer.in)),
                        .decay = true,
                        .multiplies = true,
                        .split = by_columns ? Split::columns : Split::none,
                        .partial_gradient = !by_columns});
  b_ = model.parameter({.name = name + std::string(adapter_b),
                        .shape = {whole.rows(), config.adapter.inner()},
                        .decay = true,
                        .multiplies = true,
                        .split = by_columns ? Split::none : Split::rows,
                        .partial_gradient = by_columns,
                        .row_groups = by_columns ? std::vector<RowGroup>{} : groups});
  site_ = model.dropout_site();
}

AdaptedRows Adapter::rows(int64_t parts) const {
  const auto rows_of = [&](int64_t begin, int64_t end) {
    int64_t rows = 0;
    for (int64_t g = begin; g < end; g++)
      rows += layer_.row_groups[static_cast<size_t>(g)].rows_of_part(layer_.split == Split::rows ? parts : 1);
    return rows;
  };
  AdaptedRows here;
  for (const auto& [begin, end] : adapted_)
    here.parts[static_cast<size_t>(here.count++)] = {rows_of(0, begin), rows_of(begin, end)};
  return here;
}

// In a branch, rows count from the microbatch's first, so take back the sequence-parallel offset.
Dropout Adapter::dropout(const Context& c, int64_t columns) const {
  Dropout d = c.dropout_at(site_);
  d.p = c.adapter_dropout;
  d.first_row -= c.pass.first_row;
  if (layer_.split == Split::columns) d.first_column = c.pass.part * columns;
  return d;
}

Tensor Adapter::dropped(const Context& c, Tensor x) const {
  const Dropout d = dropout(c, x.cols());
  if (!d.active()) return x;
  const Tensor y = c.scratch.tensor(x.dtype(), x.shape());
  launch(c.s, ApplyDropout{.y = y, .x = x, .dropout = d});
  return y;
}

Tensor Adapter::inner(const Context& c, const UnitTensors& w, Tensor x) const {
  const Tensor h = c.scratch.tensor(x.dtype(), {x.rows(), w[a_].rows()});
  launch(c.s, LinearForward{.y = h, .x = x, .w = w[a_]});
  return h;
}

Tensor Adapter::wide(const Context& c, const UnitTensors& w, int64_t outputs) const {
  const Tensor b = c.scratch.tensor(w[b_].dtype(), {outputs, w[a_].rows()});
  launch(c.s, SpreadAdapter{.wide = b, .b = w[b_], .rows = rows(c.pass.parts), .scale = scale_});
  return b;
}

Tensor Adapter::inner_gradient(const Context& c, const UnitTensors& w, Tensor dy) const {
  const Tensor dh = c.scratch.tensor(dy.dtype(), {dy.rows(), w[a_].rows()});
  launch(c.s, LinearBackwardInput{.dx = dh, .dy = dy, .w = wide(c, w, dy.cols())});
  return dh;
}

void Adapter::add(const Context& c, const UnitTensors& w, Tensor y, Tensor x) const {
  const auto scope = c.scratch.scope();
  const Tensor more = c.scratch.tensor(y.dtype(), {y.rows(), y.cols()});
  launch(c.s, LinearForward{.y = more, .x = inner(c, w, dropped(c, x)), .w = wide(c, w, y.cols())});
  launch(c.s, Add{.y = y, .x = more});
}

void Adapter::add_backward_input(const Context& c, const UnitTensors& w, Tensor dx, Tensor dy) const {
  const auto scope = c.scratch.scope();
  const Tensor more = c.scratch.tensor(dx.dtype(), {dx.rows(), dx.cols()});
  launch(c.s, LinearBackwardInput{.dx = more, .dy = inner_gradient(c, w, dy), .w = w[a_]});
  if (const Dropout d = dropout(c, dx.cols()); d.active())
    launch(c.s, ApplyDropout{.y = more, .x = more, .dropout = d});
  launch(c.s, Add{.y = dx, .x = more});
}

// Recomputes A's output, so that no pass keeps it.
void Adapter::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, Tensor dy, Tensor x,
                              bool add) const {
  const auto scope = c.scratch.scope();
  const Tensor input = dropped(c, x), h = inner(c, w, input);
  const Tensor dwide = c.scratch.tensor(DType::f32, {dy.cols(), h.cols()});
  launch(c.s, LinearBackwardWeight{.dw = dwide, .dy = dy, .x = h, .add = false});
  launch(c.s, CollectAdapter{.db = dw[b_], .dwide = dwide, .rows = rows(c.pass.parts), .scale = scale_, .add = add});
  launch(c.s, LinearBackwardWeight{.dw = dw[a_], .dy = inner_gradient(c, w, dy), .x = input, .add = add});
}

}  // namespace megalith
