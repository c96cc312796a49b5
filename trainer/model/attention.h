// Self-attention with its projections: out = proj(attention(qkv(x))), of the heads that are here. In between q and
// k may be normed (kernels/norm/head_norm.h) and, where positions are rotary, turned (kernels/attention/rotary.h).
// Generation attends to the keys and values that it keeps as well.
#pragma once

#include <string>

#include "configs/config.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rotary.h"
#include "trainer/model/linear.h"

namespace megalith {

// The keys and values that a layer keeps from pass to pass (cached_attention.h), and where the rows of this pass stand.
struct KeyValueCache {
  Tensor memory;        // of Attention::allocate_cache
  Tensor rows;          // (N, 2) i32: place and position
  int64_t longest = 0;  // no row stands at this position or beyond
  bool fresh = false;   // the rows are whole sequences from position 0 on, as the shape of the pass has them
};

class Attention {
 public:
  // Products.
  struct Saved {
    Tensor made;  // where q and k have norms, qkv as it was made, and (N, heads and key-value heads here) f32 of them;
    Tensor rstd;  // else empty
    Tensor qkv;   // (N, heads and twice the key-value heads here * head size); q and k normed and turned
    Tensor att;   // (N, A), A = heads here * head size
    Tensor lse;   // (B, heads here, T) f32
  };
  // The second half of the backward pass needs these of the first.
  struct Gradients {
    Tensor dout;  // (N, C): the caller's
    Tensor dqkv;  // as qkv
  };

  // Declares `name`c_attn and `name`c_proj, the second from normal(0, output_std), and a dropout of its weights.
  Attention(Declarations& model, const std::string& name, const ModelConfig& config, double output_std);

  // Memory for what of `a` has none.
  void allocate(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;
  // The same of qkv alone, and of att alone.
  void allocate_product(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;
  void allocate_output(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;
  // Makes the cache of one layer, for `places` sequences of so many positions.
  Tensor allocate_cache(Arena& arena, DType compute, const PassShape& pass, int64_t places, int64_t positions) const;

  // Returns what the branch adds to the residual (R, C), in scratch, without bias(): the branch is left; x (N, C).
  // Fills `a`. With a cache, the rows go on from what it holds, and are kept in it.
  InPieces forward(const Context& c, const UnitTensors& w, const Saved& a, InPieces x,
                   const KeyValueCache* cache) const;
  Tensor bias(const UnitTensors& t) const { return proj_.bias(t); }

  // Returns the gradient of what entered the branch (R, C), in scratch; reads g.dout, which is `dout`, and fills the
  // rest of g. `cut`: Cut::whole if work for its transfer to run beside follows. dw, of the norms of q and k,
  // accumulates.
  InPieces backward_input(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                          const Gradients& g, InPieces dout, Edge::Cut cut) const;
  // dw accumulates; unless `add`, its matrices are written. g is ready; x (N, C) as in the forward pass, awaited when
  // it is needed.
  void backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                       const Gradients& g, InPieces x, bool add) const;

 private:
  RowGroup rows_of(int64_t heads) const;
  AttentionDims dims(const PassShape& pass) const;
  Dropout dropout(const Context& c) const;

  // Makes q, k and v of what the product gave.
  void prepare(const Context& c, const UnitTensors& w, const Saved& a, const KeyValueCache* cache) const;

  int64_t width_, heads_, kv_heads_, head_size_;
  float norm_epsilon_;
  Rotation rotation_;  // of no pairs: none
  Linear qkv_;
  Param q_norm_{}, k_norm_{};
  Linear proj_;
  int32_t site_;
};

}  // namespace megalith
