// One transformer layer of GPT-2 (pre-norm), forward and backward, on local shapes:
//   mid = x   + dropout(proj(attention(qkv(ln_1(x)))))
//   y   = mid + dropout(out(gelu(fc(ln_2(mid)))))
// Recomputation calls the same forward with scratch memory in place of saved memory: there is no second forward.
#pragma once

#include <span>

#include "kernels/attention.h"
#include "trainer/model/edge.h"

namespace megalith {

// The weights of a layer in the compute dtype, or their gradients in f32. C width, F = 4C, tp the number of parts that
// heads and features are split into.
struct BlockWeights {
  Tensor ln1_w, ln1_b;    // (C)
  Tensor qkv_w, qkv_b;    // (3C/tp, C), (3C/tp)
  Tensor proj_w, proj_b;  // (C, C/tp), (C)
  Tensor ln2_w, ln2_b;    // (C)
  Tensor fc_w, fc_b;      // (F/tp, C), (F/tp)
  Tensor out_w, out_b;    // (C, F/tp), (C)

  // From the tensors of the layer's unit, in the order of the spec.
  static BlockWeights bind(std::span<const Tensor> t);
};

// Local sizes. The branches work on N = B*T rows, the residual on `rows` of them from first_row on.
struct BlockShape {
  AttentionDims attention;
  int64_t C = 0;
  int64_t first_row = 0, rows = 0;

  int64_t branch_rows() const { return attention.B * attention.T; }
};

// What backward needs of forward.
struct BlockSaved {
  Tensor x;             // (R, C): the caller's, the rest comes from Block::allocate
  Tensor stat1, stat2;  // (R, 2) f32
  Tensor ln1, ln2;      // (R, C)
  Tensor qkv;           // (N, 3C/tp)
  Tensor att;           // (N, C/tp)
  Tensor lse;           // (B, H/tp, T) f32
  Tensor mid;           // (R, C)
  Tensor fc, act;       // (N, F/tp)
};

class Block {
 public:
  Block(int64_t layer, const BlockShape& shape) : layer_(layer), shape_(shape) {}

  // Memory for everything but x.
  BlockSaved allocate(Arena& arena, DType compute) const;

  // y (R, C) written; fills `a`.
  void forward(const Context& c, const BlockWeights& w, const BlockSaved& a, Tensor y) const;

  // dy (R, C) becomes dx in place; `dw` accumulates.
  void backward(const Context& c, const BlockWeights& w, const BlockSaved& a, const BlockWeights& dw, Tensor dy) const;

 private:
  enum class Site { attention, attention_residual, mlp_residual };
  Dropout dropout(const Context& c, Site site) const;

  int64_t layer_;
  BlockShape shape_;
};

}  // namespace megalith
