// Self-attention with its projections: out = proj(attention(qkv(x))), for the local heads. In between q and k may be
// normed (kernels/norm/head_norm.h) and, with rotary positions, turned (kernels/attention/rotary.h). In generation it
// also attends to the cached keys and values.
#pragma once

#include <string>

#include "configs/config.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rotary.h"
#include "trainer/model/linear.h"

namespace megalith {

// The keys and values that a layer keeps from pass to pass (cached_attention.h), and the places of the rows of this
// pass.
struct KeyValueCache {
  Tensor memory;        // as returned by Attention::allocate_cache
  Tensor rows;          // (N, 2) i32: slot and position
  int64_t longest = 0;  // every row's position is below this
  bool fresh = false;   // the rows are whole sequences from position 0 on, with the shape of the pass
};

class Attention {
 public:
  // The outputs of products.
  struct Saved {
    Tensor made;  // if q and k have norms: the product's output, and (N, local heads and key-value heads) f32 of the
                  // norms;
    Tensor rstd;  // else empty
    Tensor qkv;   // (N, local heads and twice the key-value heads * head size); q and k normed and turned
    Tensor att;   // (N, A), A = local heads * head size
    Tensor lse;   // (B, local heads, T) f32
    Scales scales{};  // of x and att
  };
  // What the second half of the backward pass needs from the first.
  struct Gradients {
    Tensor dout;      // (N, C): the caller's memory
    Tensor dqkv;      // the shape of qkv
    Scales scales{};  // of dout and dqkv
    // In e5m2, if backward_input() casts it for backward_weight() as well; else empty.
    Tensor dout_transposed{}, dqkv_transposed{};
  };

  // Declares `name`c_attn and `name`c_proj, the second from normal(0, output_std), and a dropout of its weights.
  Attention(Declarations& model, const std::string& name, const ModelConfig& config, double output_std);

  // Allocates the tensors of `a` that have no memory.
  void allocate(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;
  // Allocate only qkv, and only att.
  void allocate_product(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;
  void allocate_output(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;
  // Returns the cache of one layer, for `places` sequences of `positions` positions.
  Tensor allocate_cache(Arena& arena, DType compute, const PassShape& pass, int64_t places, int64_t positions) const;

  // Returns what the branch adds to the residual (R, C), without bias(), after Edge::leave, in scratch; x (N, C). Fills
  // `a`. With a cache, the rows also attend to its content, and are added to it.
  InPieces forward(const Context& c, const UnitTensors& w, const Saved& a, InPieces x,
                   const KeyValueCache* cache) const;
  Tensor bias(const UnitTensors& t) const { return proj_.bias(t); }

  // Allocates what backward_input() casts for backward_weight() as well, if both follow each other.
  void allocate_transposed(Arena& arena, const UnitTensors& dw, Gradients& g) const;
  // Returns the gradient of the branch's input (R, C), in scratch; reads g.dout, which is `dout`, and fills the rest of
  // g. `cut`: Cut::whole if its transfer overlaps with later work. dw, of the norms of q and k, accumulates.
  InPieces backward_input(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                          const Gradients& g, InPieces dout, Edge::Cut cut) const;
  // dw accumulates; unless `add`, its matrices are written. g is complete; x (N, C) is as in the forward pass, and is
  // awaited when needed.
  void backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                       const Gradients& g, InPieces x, bool add) const;

 private:
  RowGroup rows_of(int64_t heads) const;
  AttentionDims dims(const PassShape& pass) const;
  Dropout dropout(const Context& c) const;

  // Computes q, k and v from the product's output.
  void prepare(const Context& c, const UnitTensors& w, const Saved& a, const KeyValueCache* cache) const;

  int64_t width_, heads_, kv_heads_, head_size_;
  float norm_epsilon_;
  Rotation rotation_;  // pairs == 0: no rotation
  Linear qkv_;
  Param q_norm_{}, k_norm_{};
  Linear proj_;
  int32_t site_;
};

}  // namespace megalith
