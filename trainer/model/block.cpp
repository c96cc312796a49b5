#include "trainer/model/block.h"

#include <cmath>
#include <memory>
#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/residual.h"

namespace megalith {

namespace {

// The default: what is added to the residual is initially smaller by sqrt(2 L). Radford et al., Language Models are
// Unsupervised Multitask Learners, 2019, section 2.3.
double residual_std(const ModelConfig& config) {
  if (config.initial_output_std > 0) return config.initial_output_std;
  return config.initial_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

// Allocates the scales of both layers.
void allocate_scales(Arena& arena, const PassTypes& types, auto& of) {
  if (!types.fp8 || !of.scales.empty()) return;
  of.scales = arena.tensor(DType::f32, {8});
  const auto scale = [&](int64_t i) { return Scale{of.scales.flat(i, i + 1), of.scales.flat(4 + i, 5 + i)}; };
  of.attention.scales = {scale(0), scale(1)};
  of.feed_forward.scales = {scale(2), scale(3)};
}
// Call this before anything is measured.
void clear_scales(const Context& c, const auto& of) {
  if (c.fp8) launch(c.s, Fill{.y = of.scales, .value = 0});
}

std::string begin_layer(Declarations& model, int64_t layer) {
  model.begin_unit(fmt::format("block {}", layer));
  return fmt::format("h.{}.", layer);
}

}  // namespace

Block::Block(Declarations& model, const ModelConfig& config, int64_t layer)
    : Block(model, config, begin_layer(model, layer)) {}

Block::Block(Declarations& model, const ModelConfig& config, const std::string& name)
    : width_(config.hidden),
      parallel_(config.parallel_residual),
      norm_1_(model, name + "ln_1", config),
      attention_(model, name + "attn.", config, residual_std(config)),
      norm_2_(model, name + "ln_2", config),
      feed_forward_(model, name + "mlp.", config, residual_std(config)),
      attention_site_(model.dropout_site()),
      feed_forward_site_(model.dropout_site()) {}

void Block::allocate(Arena& arena, const PassTypes& types, const PassShape& pass, Kept kept, BlockSaved& a) const {
  if (kept == Kept::input) return;
  allocate_scales(arena, types, a);
  attention_.allocate(arena, types.compute, pass, a.attention);
  if (a.mid.empty()) a.mid = arena.tensor(types.residual, {pass.rows, width_});
  feed_forward_.allocate(arena, types.compute, pass, kept, a.feed_forward);
  if (kept == Kept::products) return;
  norm_1_.allocate(arena, types.compute, pass.rows, a.norm_1);
  norm_2_.allocate(arena, types.compute, pass.rows, a.norm_2);
}

void Block::allocate_inputs(Arena& arena, const PassTypes& types, const PassShape& pass, BlockSaved& a) const {
  allocate_scales(arena, types, a);
  norm_1_.allocate_output(arena, types.compute, pass.rows, a.norm_1);
  attention_.allocate_output(arena, types.compute, pass, a.attention);
  norm_2_.allocate_output(arena, types.compute, pass.rows, a.norm_2);
  feed_forward_.allocate_output(arena, types.compute, pass, a.feed_forward);
}

void BlockSaved::take_inputs(const BlockSaved& inputs, Kept kept) {
  norm_1.y = inputs.norm_1.y;
  if (kept != Kept::products) attention.att = inputs.attention.att;
  norm_2.y = inputs.norm_2.y;
  feed_forward.act = inputs.feed_forward.act;
  scales = inputs.scales;
  attention.scales = inputs.attention.scales;
  feed_forward.scales = inputs.feed_forward.scales;
}

BlockGradients Block::allocate_gradients(Arena& arena, const PassTypes& types, const PassShape& pass,
                                         const BlockSaved& over) const {
  BlockSaved like = over;
  attention_.allocate_product(arena, types.compute, pass, like.attention);
  feed_forward_.allocate(arena, types.compute, pass, Kept::products, like.feed_forward);
  const Shape rows{pass.rows, width_};
  const Tensor of_mid =
      over.mid.empty() ? arena.tensor(types.compute, rows) : Tensor(over.mid.raw(), types.compute, rows);
  BlockGradients g{.attention = {.dout = of_mid, .dqkv = like.attention.qkv},
                   .feed_forward = {.dout = arena.tensor(types.compute, rows), .dfc = like.feed_forward.fc}};
  allocate_scales(arena, types, g);
  return g;
}

Largest Block::of_rows(const Context& c, const Scale& scale) const {
  return c.largest(scale, c.pass.first_row, c.pass.rows);
}

InPieces Block::enter(const Context& c, InPieces x) const {
  return c.edge.begin_enter(c.s, c.scratch, std::move(x), Edge::Cut::pieces);
}

void Block::forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y,
                    const KeyValueCache* cache) const {
  const auto scope = c.scratch.scope();
  clear_scales(c, a);
  {  // mid = x + attention(norm_1(x)),  fed = norm_2(mid)
    auto of_attention = std::make_shared<Arena::Scope>(c.scratch);
    InPieces normed_x = norm_1_.forward(c, w, a.norm_1, a.x, of_rows(c, a.attention.scales.first));
    InPieces h = attention_.forward(c, w, a.attention, enter(c, std::move(normed_x)), cache);
    InPieces normed = add_attention(c, w, a, std::move(h));
    normed.hold(std::move(of_attention));
    feed_forward_.forward(c, w, a.feed_forward, enter(c, std::move(normed)));
  }
  if (y.empty()) return;
  add_feed_forward(c, w, a, y, feed_forward_.output(c, w, a.feed_forward));  // y = mid + feed_forward(fed)
}

InPieces Block::add_attention(const Context& c, const UnitTensors& w, const BlockSaved& a, InPieces h) const {
  if (parallel_) {
    const Dropout dropout = c.dropout_at(attention_site_);
    launch(c.s, ResidualForward{.y = a.mid, .x = a.x, .h = h.all(), .b = attention_.bias(w), .dropout = dropout});
    return norm_2_.forward(c, w, a.norm_2, a.x, of_rows(c, a.feed_forward.scales.first));
  }
  const Tensor all = h.rows();
  return std::move(h).then(a.norm_2.y, [this, &c, &w, &a, all](Interval r) {
    const auto rows = [&](const Tensor& t) { return t.rows(r.begin, r.end); };
    const Norm::Saved here{.y = rows(a.norm_2.y), .stat = rows(a.norm_2.stat)};
    norm_2_.forward_residual(c, w, here, rows(a.mid), rows(a.x),
                             {rows(all), attention_.bias(w), c.from_row(r.begin).dropout_at(attention_site_)},
                             c.largest(a.feed_forward.scales.first, c.pass.first_row + r.begin, r.size()));
  });
}

void Block::add_feed_forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y, InPieces h) const {
  h.each([&](Interval r) {
    const auto rows = [&](const Tensor& t) { return t.rows(r.begin, r.end); };
    launch(c.s, ResidualForward{.y = rows(y),
                                .x = rows(a.mid),
                                .h = rows(h.rows()),
                                .b = feed_forward_.bias(w),
                                .dropout = c.from_row(r.begin).dropout_at(feed_forward_site_)});
  });
}

void Block::recompute(const Context& c, const UnitTensors& w, const BlockSaved& a) const {
  clear_scales(c, a);
  norm_1_.forward(c, w, a.norm_1, a.x, of_rows(c, a.attention.scales.first));
  c.measure(a.attention.scales.second, 0, a.attention.att);
  norm_2_.forward(c, w, a.norm_2, parallel_ ? a.x : a.mid, of_rows(c, a.feed_forward.scales.first));
  feed_forward_.recompute(c, a.feed_forward);
}

void Block::backward(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw, Tensor dy,
                     bool add) const {
  backward(c, w, a, dw, dy, nullptr, add);
}

void Block::backward_input(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw,
                           Tensor dy, const BlockGradients& g) const {
  backward(c, w, a, dw, dy, &g, false);
}

void Block::backward_weight(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw,
                            const BlockGradients& g, bool add) const {
  // All inputs of the products are in transfer from here on, so that only the first transfer does not overlap with a
  // product.
  const auto scope = c.scratch.scope();
  const auto entered = [&](const Tensor& x) { return c.edge.begin_enter(c.s, c.scratch, x, Edge::Cut::whole); };
  const auto left = [&](const Tensor& dh) { return c.edge.begin_leave_backward(c.s, c.scratch, dh, Edge::Cut::whole); };
  InPieces of_feed_forward = left(g.feed_forward.dout), to_feed_forward = entered(a.norm_2.y);
  InPieces of_attention = left(g.attention.dout), to_attention = entered(a.norm_1.y);
  const FeedForward::Gradients fed{of_feed_forward.all(), g.feed_forward.dfc, g.feed_forward.scales};
  feed_forward_.backward_weight(c, w, dw, a.feed_forward, fed, std::move(to_feed_forward), add);
  const Attention::Gradients attended{of_attention.all(), g.attention.dqkv, g.attention.scales};
  attention_.backward_weight(c, w, dw, a.attention, attended, std::move(to_attention), add);
}

void Block::backward(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw, Tensor dy,
                     const BlockGradients* kept, bool add) const {
  // The gradient of what a branch added, one branch after the other. Without dropout, in series and in one type it is
  // dy itself, unless it is kept.
  const auto scope = c.scratch.scope();
  const auto like = [&](const Tensor& t) { return c.scratch.tensor(t.dtype(), t.shape()); };
  const DType compute = a.feed_forward.fc.dtype();
  const bool apart = kept || c.dropout.active() || parallel_ || dy.dtype() != compute;
  const Tensor shared = kept ? Tensor{} : apart ? c.scratch.tensor(compute, dy.shape()) : dy;
  const Tensor dh = kept ? kept->feed_forward.dout : shared, next = kept ? kept->attention.dout : shared;
  BlockGradients here;
  if (!kept) allocate_scales(c.scratch, {.fp8 = c.fp8}, here);
  const BlockGradients& scaled = kept ? *kept : here;
  clear_scales(c, scaled);
  // Returns the gradient of the layer's input `normed` from that of its output, of which g.dout has the local rows.
  const auto back_through = [&](const auto& layer, const auto& saved, Tensor normed, auto g) {
    c.measure(g.scales.first, c.pass.first_row, g.dout);
    InPieces left = c.edge.begin_leave_backward(c.s, c.scratch, g.dout, Edge::Cut::pieces);
    g.dout = left.rows();
    if (!kept && c.fp8) layer.allocate_transposed(c.scratch, dw, g);
    // The transfer of the result overlaps, in pieces, with the product that computes it, or else with the weights'
    // gradients.
    if (kept) return layer.backward_input(c, w, dw, saved, g, std::move(left), Edge::Cut::pieces).all();
    InPieces x = c.edge.begin_enter(c.s, c.scratch, normed, Edge::Cut::whole);
    InPieces entered = layer.backward_input(c, w, dw, saved, g, std::move(left), Edge::Cut::whole);
    layer.backward_weight(c, w, dw, saved, g, std::move(x), add);
    return entered.all();
  };

  {  // dmid = dy + norm_2'(feed_forward'(dropout'(dy))), or in parallel of x;  dattention = dropout'(dmid)
    const auto scope_of_branch = c.scratch.scope();
    const Tensor bias = feed_forward_.bias(dw);
    if (apart || !bias.empty())
      launch(c.s, ResidualBackward{.dh = dh, .db = bias, .dy = dy, .dropout = c.dropout_at(feed_forward_site_)});
    const FeedForward::Gradients g{dh, kept ? kept->feed_forward.dfc : like(a.feed_forward.fc),
                                   scaled.feed_forward.scales};
    const Tensor dnorm = back_through(feed_forward_, a.feed_forward, a.norm_2.y, g);
    const Norm::Branch branch{next, attention_.bias(dw), c.dropout_at(attention_site_)};
    if (parallel_) {
      launch(c.s, ResidualBackward{.dh = branch.h, .db = branch.bias, .dy = dy, .dropout = branch.dropout});
      norm_2_.backward(c, w, a.norm_2, dw, dy, dnorm, a.x);
    } else {
      norm_2_.backward_residual(c, w, a.norm_2, dw, dy, branch, dnorm, a.mid);
    }
  }
  {  // dx = dmid + norm_1'(attention'(dattention))
    const auto scope_of_branch = c.scratch.scope();
    const Attention::Gradients g{next, kept ? kept->attention.dqkv : like(a.attention.qkv), scaled.attention.scales};
    const Tensor dnorm = back_through(attention_, a.attention, a.norm_1.y, g);
    norm_1_.backward(c, w, a.norm_1, dw, dy, dnorm, a.x);
  }
}

}  // namespace megalith
