// The feed-forward layer: out = proj(gelu(fc(x))), of the features that are here.
#pragma once

#include <string>

#include "trainer/model/linear.h"

namespace megalith {

class FeedForward {
 public:
  struct Saved {
    Tensor fc;   // (N, F), F = features here; a product
    Tensor act;  // (N, F): gelu(fc)
  };
  // The second half of the backward pass needs these of the first.
  struct Gradients {
    Tensor dout;  // (N, C): the caller's
    Tensor dfc;   // (N, F)
  };

  // Declares `name`c_fc and `name`c_proj, the second from normal(0, output_std).
  FeedForward(Declarations& model, const std::string& name, int64_t width, int64_t features, double std,
              double output_std);

  // Memory for what of `a` has none and is to be kept.
  void allocate(Arena& arena, DType compute, const PassShape& pass, Kept kept, Saved& a) const;

  // Fills `a`; x (N, C).
  void forward(const Context& c, const UnitTensors& w, const Saved& a, Tensor x) const;
  // Fills what is not a product.
  void recompute(const Context& c, const Saved& a) const;
  // Returns the branch's partial output (N, C), in scratch, without bias().
  Tensor output(const Context& c, const UnitTensors& w, const Saved& a) const;
  Tensor bias(const UnitTensors& t) const { return proj_.bias(t); }

  // Returns dx (N, C), in scratch; reads g.dout and fills the rest of g.
  Tensor backward_input(const Context& c, const UnitTensors& w, const Saved& a, const Gradients& g) const;
  // dw accumulates; unless `add`, its matrices are written. x (N, C) as in the forward pass.
  void backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Saved& a,
                       const Gradients& g, Tensor x, bool add) const;

 private:
  int64_t width_, features_;
  Linear fc_, proj_;
};

}  // namespace megalith
