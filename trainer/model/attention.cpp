#include "trainer/model/attention.h"

#include <algorithm>

#include "kernels/attention/cached_attention.h"
#include "kernels/norm/head_norm.h"

namespace megalith {

namespace {
Rotation rotation_of(const ModelConfig& config) {
  if (config.positions != Positions::rotary) return {};
  return make_rotation(config.rotary_pairs(), config.rotary_base,
                       {.factor = config.rotary_factor,
                        .low = config.rotary_low,
                        .high = config.rotary_high,
                        .original_context = static_cast<double>(config.rotary_context)});
}

Param declare_norm(Declarations& model, const std::string& name, const ModelConfig& config) {
  if (!config.query_key_norm) return {};
  return model.parameter({.name = name, .shape = {config.size_of_head()}, .init_value = 1, .partial_gradient = true});
}
}  // namespace

Attention::Attention(Declarations& model, const std::string& name, const ModelConfig& config, double output_std)
    : width_(config.hidden),
      heads_(config.heads),
      kv_heads_(config.kv_heads()),
      head_size_(config.size_of_head()),
      norm_epsilon_(static_cast<float>(config.norm_epsilon)),
      rotation_(rotation_of(config)),
      qkv_(model, name + "c_attn",
           {.in = width_,
            .out = config.qkv_width(),
            .split = Split::rows,
            .row_groups = {rows_of(heads_), rows_of(kv_heads_), rows_of(kv_heads_)},
            .bias = config.qkv_bias},
           config.initial_std, config),
      q_norm_(declare_norm(model, name + "q_norm.weight", config)),
      k_norm_(declare_norm(model, name + "k_norm.weight", config)),
      proj_(model, name + "c_proj",
            {.in = heads_ * head_size_, .out = width_, .split = Split::columns, .row_groups = {}, .bias = config.bias},
            output_std, config),
      site_(model.dropout_site()) {}

RowGroup Attention::rows_of(int64_t heads) const { return {.rows = heads * head_size_, .block = head_size_}; }

AttentionDims Attention::dims(const PassShape& pass) const {
  const int64_t here = heads_ / pass.parts;
  return {.B = pass.B,
          .T = pass.T,
          .H = here,
          .D = head_size_,
          .first_head = pass.part * here,
          .key_value_heads = std::max<int64_t>(1, kv_heads_ / pass.parts)};
}

// In a branch, rows count from the microbatch's first, so take back the sequence-parallel offset.
Dropout Attention::dropout(const Context& c) const {
  Dropout d = c.dropout_at(site_);
  d.first_row -= c.pass.first_row;
  return d;
}

void Attention::allocate(Arena& arena, DType compute, const PassShape& pass, Saved& a) const {
  const AttentionDims here = dims(pass);
  allocate_product(arena, compute, pass, a);
  if (q_norm_.index >= 0 && a.made.empty()) {
    a.made = arena.tensor(compute, a.qkv.shape());
    a.rstd = arena.tensor(DType::f32, {pass.branch_rows(), here.H + here.kv()});
  }
  allocate_output(arena, compute, pass, a);
  if (a.lse.empty()) a.lse = arena.tensor(DType::f32, {here.B, here.H, here.T});
}

void Attention::allocate_product(Arena& arena, DType compute, const PassShape& pass, Saved& a) const {
  if (a.qkv.empty()) a.qkv = arena.tensor(compute, {pass.branch_rows(), dims(pass).qkv_width()});
}

void Attention::allocate_output(Arena& arena, DType compute, const PassShape& pass, Saved& a) const {
  const AttentionDims here = dims(pass);
  if (a.att.empty()) a.att = arena.tensor(compute, {pass.branch_rows(), here.H * here.D});
}

Tensor Attention::allocate_cache(Arena& arena, DType compute, const PassShape& pass, int64_t places,
                                 int64_t positions) const {
  const AttentionDims here = dims(pass);
  return arena.tensor(compute, {2 * places, here.kv(), positions, here.D});
}

void Attention::prepare(const Context& c, const UnitTensors& w, const Saved& a, const KeyValueCache* cache) const {
  if (!a.made.empty())
    launch(c.s, HeadNormForward{.y = a.qkv,
                                .rstd = a.rstd,
                                .x = a.made,
                                .q_w = w[q_norm_],
                                .k_w = w[k_norm_],
                                .dims = dims(c.pass),
                                .epsilon = norm_epsilon_});
  if (rotation_.pairs > 0)
    launch(c.s, Rotate{.qkv = a.qkv,
                       .dims = dims(c.pass),
                       .rotation = rotation_,
                       .positions = {c.starts, cache ? cache->rows : Tensor{}},
                       .forward = true});
}

InPieces Attention::forward(const Context& c, const UnitTensors& w, const Saved& a, InPieces x,
                            const KeyValueCache* cache) const {
  const Tensor out = c.scratch.tensor(x.rows().dtype(), {c.pass.branch_rows(), width_});
  const Tensor made = a.made.empty() ? a.qkv : a.made;
  x.each(qkv_.forward(c, w, made, {Linear::factor(c, x), a.scales.first}));
  prepare(c, w, a, cache);
  if (cache != nullptr) launch(c.s, KeepKeysValues{.cache = cache->memory, .qkv = a.qkv, .rows = cache->rows});
  if (cache == nullptr || cache->fresh)
    launch(
        c.s,
        AttentionForward{
            .out = a.att, .lse = a.lse, .qkv = a.qkv, .dims = dims(c.pass), .dropout = dropout(c), .starts = c.starts});
  else
    launch(c.s,
           CachedAttention{
               .out = a.att, .qkv = a.qkv, .cache = cache->memory, .rows = cache->rows, .longest = cache->longest});
  c.measure(a.scales.second, 0, a.att);
  return c.edge.begin_leave(c.s, c.scratch, out, proj_.forward(c, w, out, {a.att, a.scales.second}));
}

void Attention::allocate_transposed(Arena& arena, const UnitTensors& dw, Gradients& g) const {
  g.dout_transposed = proj_.allocate_transposed(arena, dw, g.dout);
  g.dqkv_transposed = qkv_.allocate_transposed(arena, dw, g.dqkv);
}

InPieces Attention::backward_input(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                                   const Gradients& g, InPieces dout, Edge::Cut cut) const {
  const auto like = [&](const Tensor& t) { return c.scratch.tensor(t.dtype(), t.shape()); };
  const AttentionDims here = dims(c.pass);
  const Tensor dx = like(g.dout), datt = like(a.att), delta = like(a.lse);
  dout.each(proj_.backward_input(c, w, datt, {Linear::factor(c, dout), g.scales.first, g.dout_transposed}));
  {
    const Arena::Scope only_here = c.scratch.scope();
    const int64_t sums = attention_backward_scratch(c.s.queue().chip, a.qkv.dtype(), here);
    launch(c.s, AttentionBackward{.dqkv = g.dqkv,
                                  .delta = delta,
                                  .dout = datt,
                                  .out = a.att,
                                  .lse = a.lse,
                                  .qkv = a.qkv,
                                  .dims = here,
                                  .dropout = dropout(c),
                                  .starts = c.starts,
                                  .scratch = sums > 0 ? c.scratch.tensor(DType::f32, {sums}) : Tensor{}});
  }
  if (rotation_.pairs > 0)
    launch(
        c.s,
        Rotate{
            .qkv = g.dqkv, .dims = dims(c.pass), .rotation = rotation_, .positions = {c.starts, {}}, .forward = false});
  if (!a.made.empty())
    launch(c.s, HeadNormBackward{.d = g.dqkv,
                                 .dq_w = dw[q_norm_],
                                 .dk_w = dw[k_norm_],
                                 .x = a.made,
                                 .rstd = a.rstd,
                                 .q_w = w[q_norm_],
                                 .k_w = w[k_norm_],
                                 .dims = dims(c.pass)});
  c.measure(g.scales.second, 0, g.dqkv);
  return c.edge.begin_enter_backward(c.s, c.scratch, dx,
                                     qkv_.backward_input(c, w, dx, {g.dqkv, g.scales.second, g.dqkv_transposed}), cut);
}

void Attention::backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                                const Gradients& g, InPieces x, bool add) const {
  proj_.backward_weight(c, w, dw, {g.dout, g.scales.first, g.dout_transposed}, {a.att, a.scales.second}, add);
  qkv_.backward_weight(c, w, dw, {g.dqkv, g.scales.second, g.dqkv_transposed}, {x.all(), a.scales.first}, add);
}

}  // namespace megalith
