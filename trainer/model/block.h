// One transformer layer (pre-norm), forward and backward, on local shapes:
//   mid = x   + dropout(attention(norm_1(x)))
//   y   = mid + dropout(feed_forward(norm_2(mid))), or in parallel, as GPT-NeoX has it, ... norm_2(x)
// What its parts are, its options decide: layer norm or RMS norm (norm.h), positions and heads (attention.h), and the
// activation (feed_forward.h).
// Recomputation calls the same forward with scratch memory in place of saved memory: there is no second forward, but
// for the elementwise ops alone.
#pragma once

#include <string>

#include "configs/config.h"
#include "trainer/model/attention.h"
#include "trainer/model/feed_forward.h"
#include "trainer/model/norm.h"

namespace megalith {

// What backward needs from forward.
struct BlockSaved {
  Tensor x;    // (R, C): the caller's memory; the rest comes from Block::allocate
  Tensor mid;  // (R, C)
  Norm::Saved norm_1, norm_2;
  Attention::Saved attention;
  FeedForward::Saved feed_forward;
  Tensor scales{};  // (8) f32: of both layers, or empty

  // Takes the inputs of products (Block::allocate_inputs) in place of its own, except products that are kept.
  void take_inputs(const BlockSaved& inputs, Kept kept);
};

// What the second half of a layer's backward pass needs from the first. Of the gradients of the branches' outputs it
// has the rows of the residual (R, C); each half gathers the branch's rows from them. It can reuse the memory of what
// the first half needs from the forward pass.
struct BlockGradients {
  Attention::Gradients attention;
  FeedForward::Gradients feed_forward;
  Tensor scales{};  // (8) f32: of both layers, or empty
};

class Block {
 public:
  // Declares a unit "block `layer`".
  Block(Declarations& model, const ModelConfig& config, int64_t layer);

  // Allocates what `kept` keeps of `a` and has no memory yet, except x.
  void allocate(Arena& arena, const PassTypes& types, const PassShape& pass, Kept kept, BlockSaved& a) const;
  // Allocates the inputs of products in `a`, which both halves of the backward pass need.
  void allocate_inputs(Arena& arena, const PassTypes& types, const PassShape& pass, BlockSaved& a) const;
  // Allocates gradients: in the memory of `over`, whose content is then lost, or else in the arena.
  BlockGradients allocate_gradients(Arena& arena, const PassTypes& types, const PassShape& pass,
                                    const BlockSaved& over) const;
  const Attention& attention() const { return attention_; }

  // y (R, C) written; fills `a`. Without y (an empty tensor) only the tensors of `a` are computed. With a cache, the
  // rows also attend to its content, and are added to it.
  void forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y,
               const KeyValueCache* cache = nullptr) const;

  // Fills the rest of `a` from x and the products, with the same bits as forward().
  void recompute(const Context& c, const UnitTensors& w, const BlockSaved& a) const;

  // dy (R, C) becomes dx in place; `dw` accumulates. Unless `add`, its matrices are written.
  void backward(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw, Tensor dy,
                bool add) const;

  // backward() in two halves with the same bits. backward_input turns dy into dx in place, writes g, and accumulates
  // the gradients in `dw` that are not products; backward_weight adds the rest and takes the same inputs.
  void backward_input(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw, Tensor dy,
                      const BlockGradients& g) const;
  void backward_weight(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw,
                       const BlockGradients& g, bool add) const;

 private:
  Block(Declarations& model, const ModelConfig& config, const std::string& name);

  // Returns what an op needs to find the largest magnitude of all of this rank's rows of the residual.
  Largest of_rows(const Context& c, const Scale& scale) const;
  InPieces enter(const Context& c, InPieces x) const;
  // Fills mid and norm_2 from h, the attention's output, and returns the output of norm_2.
  InPieces add_attention(const Context& c, const UnitTensors& w, const BlockSaved& a, InPieces h) const;
  // Writes y = mid + h, the output of the feed-forward layer.
  void add_feed_forward(const Context& c, const UnitTensors& w, const BlockSaved& a, Tensor y, InPieces h) const;

  // Both halves, with gradients of weights as early as possible; or with `kept`, what backward_weight() needs, only the
  // first half.
  void backward(const Context& c, const UnitTensors& w, const BlockSaved& a, const UnitTensors& dw, Tensor dy,
                const BlockGradients* kept, bool add) const;

  int64_t width_;
  bool parallel_;
  Norm norm_1_;
  Attention attention_;
  Norm norm_2_;
  FeedForward feed_forward_;
  int32_t attention_site_, feed_forward_site_;  // the dropout of each branch's output
};

}  // namespace megalith
