// A layer norm or RMS norm over the width of the residual (kernels/norm/layernorm.h), as a separate op or fused with
// the end of the residual branch before it.
#pragma once

#include <string>

#include "configs/config.h"
#include "kernels/norm/layernorm.h"
#include "trainer/model/layer.h"

namespace megalith {

class Norm {
 public:
  // Elementwise, so it can be recomputed from the input.
  struct Saved {
    Tensor y;     // (R, C)
    Tensor stat;  // (R, 2) f32
  };

  // Declares `name`.weight, from 1, and for a layer norm `name`.bias, from 0.
  Norm(Declarations& model, const std::string& name, const ModelConfig& config);

  // Allocates the tensors of `a` that have no memory, for `rows` rows.
  void allocate(Arena& arena, DType compute, int64_t rows, Saved& a) const;
  // Allocates only y.
  void allocate_output(Arena& arena, DType compute, int64_t rows, Saved& a) const;

  // Fills `a` from x (R, C), and returns its y. Here and below, `largest` is of y.
  Tensor forward(const Context& c, const UnitTensors& w, const Saved& a, Tensor x, const Largest& largest) const;

  // dx (R, C) accumulates; dy (R, C).
  void backward(const Context& c, const UnitTensors& w, const Saved& a, const UnitTensors& dw, Tensor dx, Tensor dy,
                Tensor x) const;

  // The end of a residual branch: its output, before the bias and dropout.
  struct Branch {
    Tensor h, bias;  // (R, C), (C) or empty; in backward their gradients
    Dropout dropout;
  };
  // sum = x + dropout(h + bias), written; fills `a` from it.
  void forward_residual(const Context& c, const UnitTensors& w, const Saved& a, Tensor sum, Tensor x,
                        const Branch& branch, const Largest& largest) const;

  // dx holds the gradient of the sum on entry and that of x on return; d.h = dropout(dx), written, and d.bias
  // accumulates. Without dropout d.h may be dx.
  void backward_residual(const Context& c, const UnitTensors& w, const Saved& a, const UnitTensors& dw, Tensor dx,
                         const Branch& d, Tensor dy, Tensor sum) const;

 private:
  int64_t width_;
  NormRule rule_;
  Param weight_, bias_{};
};

}  // namespace megalith
