// The feed-forward layer, for the local features: out = proj(gelu(fc(x))) or, with SwiGLU, whose fc makes two products
// of x, out = proj(silu(gate) * up).
#pragma once

#include <string>

#include "configs/config.h"
#include "trainer/model/linear.h"

namespace megalith {

class FeedForward {
 public:
  struct Saved {
    Tensor fc;        // (N, F), F = local features, or (N, 2F), gate and up; a product
    Tensor act;       // (N, F): the activation of fc
    Scales scales{};  // of x and act
  };
  // What the second half of the backward pass needs from the first.
  struct Gradients {
    Tensor dout;      // (N, C): the caller's memory
    Tensor dfc;       // the shape of fc
    Scales scales{};  // of dout and dfc
    // In e5m2, if backward_input() casts it for backward_weight() as well; else empty.
    Tensor dout_transposed{}, dfc_transposed{};
  };

  // Declares `name`c_fc and `name`c_proj, the second from normal(0, output_std).
  FeedForward(Declarations& model, const std::string& name, const ModelConfig& config, double output_std);

  // Allocates what `kept` keeps of `a` and has no memory yet.
  void allocate(Arena& arena, DType compute, const PassShape& pass, Kept kept, Saved& a) const;
  // Allocates only act.
  void allocate_output(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;

  // Fills `a`; x (N, C).
  void forward(const Context& c, const UnitTensors& w, const Saved& a, InPieces x) const;
  // Fills the tensors of `a` that are not products.
  void recompute(const Context& c, const Saved& a) const;
  // Returns what the branch adds to the residual (R, C), without bias(), after Edge::leave, in scratch.
  InPieces output(const Context& c, const UnitTensors& w, const Saved& a) const;
  Tensor bias(const UnitTensors& t) const { return proj_.bias(t); }

  // Allocates what backward_input() casts for backward_weight() as well, if both follow each other.
  void allocate_transposed(Arena& arena, const UnitTensors& dw, Gradients& g) const;
  // Returns the gradient of the branch's input (R, C), in scratch; reads g.dout, which is `dout`, and fills the rest of
  // g. `cut`: Cut::whole if its transfer overlaps with later work. dw is as in Attention's: this half adds nothing to
  // it.
  InPieces backward_input(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                          const Gradients& g, InPieces dout, Edge::Cut cut) const;
  // dw accumulates; unless `add`, its matrices are written. g is complete; x (N, C) is as in the forward pass, and is
  // awaited when needed.
  void backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                       const Gradients& g, InPieces x, bool add) const;

 private:
  // Computes rows of `act` from those of `fc`.
  void activate(const Context& c, const Saved& a, Interval rows) const;
  // Its gradient: rows of dfc written from dact. They may be the same tensor if they have the same shape.
  void deactivate(const Context& c, const Saved& a, const Gradients& g, Tensor dact, Interval rows) const;

  int64_t width_, features_, products_;  // products_: of x for each feature, 1, or 2 with SwiGLU
  Activation activation_;
  Linear fc_, proj_;
};

}  // namespace megalith
