// The feed-forward layer, of the features that are here: out = proj(gelu(fc(x))), or, with SwiGLU, where fc makes two
// products of x, out = proj(silu(gate) * up).
#pragma once

#include <string>

#include "configs/config.h"
#include "trainer/model/linear.h"

namespace megalith {

class FeedForward {
 public:
  struct Saved {
    Tensor fc;   // (N, F), F = features here, or (N, 2F), gate and up; a product
    Tensor act;  // (N, F): the activation of fc
  };
  // The second half of the backward pass needs these of the first.
  struct Gradients {
    Tensor dout;  // (N, C): the caller's
    Tensor dfc;   // as fc
  };

  // Declares `name`c_fc and `name`c_proj, the second from normal(0, output_std).
  FeedForward(Declarations& model, const std::string& name, const ModelConfig& config, double output_std);

  // Memory for what of `a` has none and is to be kept.
  void allocate(Arena& arena, DType compute, const PassShape& pass, Kept kept, Saved& a) const;
  // The same of act alone.
  void allocate_output(Arena& arena, DType compute, const PassShape& pass, Saved& a) const;

  // Fills `a`; x (N, C).
  void forward(const Context& c, const UnitTensors& w, const Saved& a, InPieces x) const;
  // Fills what is not a product.
  void recompute(const Context& c, const Saved& a) const;
  // Returns what the branch adds to the residual (R, C), in scratch, without bias(): the branch is left.
  InPieces output(const Context& c, const UnitTensors& w, const Saved& a) const;
  Tensor bias(const UnitTensors& t) const { return proj_.bias(t); }

  // Returns the gradient of what entered the branch (R, C), in scratch; reads g.dout, which is `dout`, and fills the
  // rest of g. `cut`: Cut::whole if work for its transfer to run beside follows. dw is as in Attention's: this half
  // adds nothing to it.
  InPieces backward_input(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                          const Gradients& g, InPieces dout, Edge::Cut cut) const;
  // dw accumulates; unless `add`, its matrices are written. g is ready; x (N, C) as in the forward pass, awaited when
  // it is needed.
  void backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                       const Gradients& g, InPieces x, bool add) const;

 private:
  // Makes `act` of rows of `fc`.
  void activate(const Context& c, Tensor act, Tensor fc) const;

  int64_t width_, features_, products_;  // of x for each feature: 1, or with SwiGLU 2
  Activation activation_;
  Linear fc_, proj_;
};

}  // namespace megalith
