#include "trainer/model/block.h"

#include "kernels/cached_attention.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/linear.h"
#include "kernels/residual.h"

namespace megalith {

void Block::allocate(Arena& arena, DType compute, BlockSaved& a) const {
  const int64_t N = shape_.branch_rows(), R = shape_.rows, C = shape_.C;
  if (a.qkv.empty()) allocate_products(arena, compute, a);
  if (!a.ln1.empty()) return;
  a.stat1 = arena.tensor(DType::f32, {R, 2});
  a.stat2 = arena.tensor(DType::f32, {R, 2});
  a.ln1 = arena.tensor(compute, {R, C});
  a.ln2 = arena.tensor(compute, {R, C});
  a.act = arena.tensor(compute, {N, shape_.F});
}

void Block::allocate_products(Arena& arena, DType compute, BlockSaved& a) const {
  const AttentionDims& dims = shape_.attention;
  const int64_t N = shape_.branch_rows(), A = dims.H * dims.D;
  a.qkv = arena.tensor(compute, {N, 3 * A});
  a.att = arena.tensor(compute, {N, A});
  a.lse = arena.tensor(DType::f32, {dims.B, dims.H, dims.T});
  a.mid = arena.tensor(compute, {shape_.rows, shape_.C});
  a.fc = arena.tensor(compute, {N, shape_.F});
}

void Block::forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y) const {
  forward(c, w, a, y, nullptr);
}

void Block::go_on(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y,
                  const BlockCache& cache) const {
  forward(c, w, a, y, &cache);
}

// att = attention(qkv), and of what is kept.
void Block::attend(const Context& c, const BlockSaved& a, const BlockCache* cache) const {
  if (cache != nullptr) keep_keys_values(c.s, cache->memory, a.qkv, cache->rows);
  if (cache == nullptr || cache->fresh)
    attention_forward(c.s, a.att, a.lse, a.qkv, shape_.attention, dropout(c, Site::attention), c.starts);
  else
    cached_attention(c.s, a.att, a.qkv, cache->memory, cache->rows, cache->longest);
}

void Block::forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y,
                    const BlockCache* cache) const {
  // What a branch adds, before its bias.
  auto branch_output = [&] { return c.scratch.tensor(a.x.dtype(), {shape_.branch_rows(), shape_.C}); };

  {  // mid = x + dropout(leave(proj(attention(qkv(enter(ln_1(x)))))) + proj_b),  ln2 = ln_2(mid)
    const auto scope = c.scratch.scope();
    const Tensor h = branch_output();
    layernorm_forward(c.s, a.ln1, a.stat1, a.x, w.ln1_w, w.ln1_b);
    linear_forward(c.s, a.qkv, c.edge.enter(c.s, c.scratch, a.ln1), w.qkv_w, w.qkv_b);
    attend(c, a, cache);
    linear_forward(c.s, h, a.att, w.proj_w, {});
    residual_layernorm_forward(c.s, a.mid, a.ln2, a.stat2, a.x, c.edge.leave(c.s, c.scratch, h), w.proj_b, w.ln2_w,
                               w.ln2_b, dropout(c, Site::attention_residual));
  }
  {  // y = mid + dropout(leave(out(gelu(fc(enter(ln2))))) + out_b)
    const auto scope = c.scratch.scope();
    linear_gelu_forward(c.s, a.act, a.fc, c.edge.enter(c.s, c.scratch, a.ln2), w.fc_w, w.fc_b);
    if (y.empty()) return;
    const Tensor h = branch_output();
    linear_forward(c.s, h, a.act, w.out_w, {});
    residual_forward(c.s, y, a.mid, c.edge.leave(c.s, c.scratch, h), w.out_b, dropout(c, Site::mlp_residual));
  }
}

void Block::forward_elementwise(const Context& c, const UnitTensors& w, const BlockSaved& a) const {
  layernorm_forward(c.s, a.ln1, a.stat1, a.x, w.ln1_w, w.ln1_b);
  layernorm_forward(c.s, a.ln2, a.stat2, a.mid, w.ln2_w, w.ln2_b);
  gelu_forward(c.s, a.act, a.fc);
}

void Block::backward(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw, Tensor dy,
                     bool add) const {
  auto like = [&](Tensor t) { return c.scratch.tensor(t.dtype(), t.shape()); };
  auto entered = [&] { return c.scratch.tensor(dy.dtype(), {shape_.branch_rows(), shape_.C}); };
  // The gradient of what a branch added, each in its turn; without dropout it is dy itself.
  const auto scope = c.scratch.scope();
  const Tensor dh = c.dropout.active() ? like(dy) : dy;

  {  // dh = dropout(dy),  dmid = dy + ln_2'(enter'(fc'(gelu'(out'(leave'(dh)))))),  dh = dropout(dmid)
    const auto branch = c.scratch.scope();
    residual_backward(c.s, dh, dw.out_b, dy, dropout(c, Site::mlp_residual));
    const Tensor dout = c.edge.leave_backward(c.s, c.scratch, dh);
    const Tensor dfc = like(a.fc), dln2 = entered();
    linear_backward_weight(c.s, dw.out_w, {}, dout, a.act, add);
    linear_backward_input_gelu(c.s, dfc, dout, w.out_w, a.fc);
    linear_backward_weight(c.s, dw.fc_w, dw.fc_b, dfc, c.edge.enter(c.s, c.scratch, a.ln2), add);
    linear_backward_input(c.s, dln2, dfc, w.fc_w);
    residual_layernorm_backward(c.s, dy, dh, dw.proj_b, dw.ln2_w, dw.ln2_b, c.edge.enter_backward(c.s, c.scratch, dln2),
                                a.mid, a.stat2, w.ln2_w, dropout(c, Site::attention_residual));
  }
  {  // dx = dmid + ln_1'(enter'(qkv'(attention'(proj'(leave'(dh))))))
    const auto branch = c.scratch.scope();
    const Tensor dproj = c.edge.leave_backward(c.s, c.scratch, dh);
    const Tensor datt = like(a.att), delta = like(a.lse), dqkv = like(a.qkv), dln1 = entered();
    linear_backward_weight(c.s, dw.proj_w, {}, dproj, a.att, add);
    linear_backward_input(c.s, datt, dproj, w.proj_w);
    attention_backward(c.s, dqkv, delta, datt, a.att, a.lse, a.qkv, shape_.attention, dropout(c, Site::attention),
                       c.starts);
    linear_backward_weight(c.s, dw.qkv_w, dw.qkv_b, dqkv, c.edge.enter(c.s, c.scratch, a.ln1), add);
    linear_backward_input(c.s, dln1, dqkv, w.qkv_w);
    layernorm_backward(c.s, dy, dw.ln1_w, dw.ln1_b, c.edge.enter_backward(c.s, c.scratch, dln1), a.x, a.stat1, w.ln1_w);
  }
}

Dropout Block::dropout(const Context& c, Site site) const {
  Dropout d = c.dropout;
  d.site = static_cast<int32_t>(dropout_sites(layer_) + static_cast<int64_t>(site));  // the embedding's is the first
  if (site == Site::attention) d.first_row -= shape_.first_row;  // it sees all rows of the microbatch
  return d;
}

}  // namespace megalith
