// One transformer layer of GPT-2 (pre-norm), forward and backward, on local shapes:
//   mid = x   + dropout(proj(attention(qkv(ln_1(x)))))
//   y   = mid + dropout(out(gelu(fc(ln_2(mid)))))
// Recomputation calls the same forward with scratch memory in place of saved memory: there is no second forward, but
// for the elementwise ops alone.
#pragma once

#include "kernels/attention.h"
#include "trainer/model/edge.h"
#include "trainer/model/spec.h"

namespace megalith {

// Local sizes. The branches work on N = B*T rows, the residual on `rows` of them from first_row on. F is the part of
// the feed-forward width that is here.
struct BlockShape {
  AttentionDims attention;
  int64_t C = 0, F = 0;
  int64_t first_row = 0, rows = 0;

  int64_t branch_rows() const { return attention.B * attention.T; }
};

// The keys and values that a layer keeps from pass to pass (cached_attention.h), and where the rows of this pass stand.
struct BlockCache {
  Tensor memory;        // (2 * places, H/tp, positions, D)
  Tensor rows;          // (N, 2) i32: place and position
  int64_t longest = 0;  // no row stands at this position or beyond
  bool fresh = false;   // the rows are whole sequences from position 0 on, as the shape has them
};

// What backward needs of forward.
struct BlockSaved {
  Tensor x;  // (R, C): the caller's, the rest comes from Block::allocate
  // Products: what GEMMs, attention and the edges made.
  Tensor qkv;  // (N, 3C/tp)
  Tensor att;  // (N, C/tp)
  Tensor lse;  // (B, H/tp, T) f32
  Tensor mid;  // (R, C)
  Tensor fc;   // (N, F)
  // What elementwise ops make of them.
  Tensor stat1, stat2;  // (R, 2) f32
  Tensor ln1, ln2;      // (R, C)
  Tensor act;           // (N, F)
};

class Block {
 public:
  Block(int64_t layer, const BlockShape& shape) : layer_(layer), shape_(shape) {}

  // How many masks of dropout a model of so many layers has: the embedding's, and each layer's (Dropout::site).
  static constexpr int64_t dropout_sites(int64_t layers) { return 1 + layers * sites; }

  // Memory for what of `a` has none yet, but for x; for its products.
  void allocate(Arena& arena, DType compute, BlockSaved& a) const;
  void allocate_products(Arena& arena, DType compute, BlockSaved& a) const;

  // y (R, C) written; fills `a`. Without y (an empty tensor) only what `a` holds is computed.
  void forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y) const;

  // The same of rows that go on from what the cache holds, and are kept in it.
  void go_on(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y, const BlockCache& cache) const;

  // Fills the rest of `a` from x and the products, with the bits that forward() gave it.
  void forward_elementwise(const Context& c, const UnitTensors& w, const BlockSaved& a) const;

  // dy (R, C) becomes dx in place; `dw` accumulates. Unless `add`, its matrices are written.
  void backward(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw, Tensor dy,
                bool add) const;

 private:
  void forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y, const BlockCache* cache) const;
  void attend(const Context& c, const BlockSaved& a, const BlockCache* cache) const;

  enum class Site { attention, attention_residual, mlp_residual };
  static constexpr int64_t sites = 3;
  Dropout dropout(const Context& c, Site site) const;

  int64_t layer_;
  BlockShape shape_;
};

}  // namespace megalith
