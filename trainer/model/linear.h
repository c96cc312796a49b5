// A linear layer: y = x w^T + b, w (out, in). Tensor parallelism splits it by its output features or by its input
// features, Megatron's column-parallel and row-parallel linear (their matrices are (in, out); Shoeybi et al., arXiv
// 1909.08053, section 3). In a row-parallel layer each part's y is a partial sum, so forward leaves out the bias, and
// the residual adds it once, after the sum.
//
// With Context::fp8 the factors of its products are cast to 8 bits: x and w to e4m3, dy to e5m2, each with one scale
// for the whole tensor of the microbatch, of all parts. So a product needs all of its factors before its first row.
// Inputs and gradients are not kept: each pass casts again, from the same values to the same bits.
//
// A layer may have an adapter (adapter.h). Gradients of frozen parameters are not computed.
#pragma once

#include <string>

#include "trainer/model/adapter.h"
#include "trainer/model/edge.h"
#include "trainer/model/layer.h"

namespace megalith {

class Linear {
 public:
  struct Shape {
    int64_t in = 0, out = 0;  // global
    Split split = Split::none;
    std::vector<RowGroup> row_groups{};  // of the output: q, k, v
    bool bias = true;
  };
  // Declares `name`.weight, from normal(0, std), `name`.bias, if it has one, from 0, and its adapter, if the config
  // gives it one.
  Linear(Declarations& model, const std::string& name, const Shape& shape, double std, const ModelConfig& config);

  Tensor bias(const UnitTensors& t) const { return t[bias_]; }

  // Returns x for one of the products below: its rows need not be ready yet, except in 8 bits, where this waits for
  // all.
  static Tensor factor(const Context& c, InPieces& x) { return c.fp8 ? x.all() : x.rows(); }

  // Rows, and for products in 8 bits their scale. `transposed`: for gradients whose transpose is cast with them, or has
  // been; else empty.
  struct Measured {
    Tensor rows;
    Scale scale{};
    Tensor transposed{};
  };
  // Allocates the transpose of dy in e5m2; empty if the weight is frozen.
  Tensor allocate_transposed(Arena& arena, const UnitTensors& dw, const Tensor& dy) const {
    return dw[weight_].empty() ? Tensor{} : arena.tensor(DType::e5m2, {dy.cols(), dy.rows()});
  }

  // Returns whether GELU can be fused with its products: neither in 8 bits nor with an adapter.
  bool fuses_gelu(const Context& c) const { return !adapter_ && !c.fp8; }

  // Each of these returns a product, which computes rows of its result whenever it is called, as those of x or dy are
  // ready. c and w must outlive it, and so must the caller's scratch scope. All sizes here and below are local.
  using Product = Edge::Product;
  // y (N, out) written; x (N, in).
  Product forward(const Context& c, const UnitTensors& w, Tensor y, const Measured& x) const;
  // The same product, into h, where it fuses GELU; y (N, out) = gelu(h), written.
  Product forward_gelu(const Context& c, const UnitTensors& w, Tensor y, Tensor h, Tensor x) const;
  // dx (N, in) written; dy (N, out).
  Product backward_input(const Context& c, const UnitTensors& w, Tensor dx, const Measured& dy) const;
  // Where it fuses GELU, for x = gelu(h): dh (N, in), written; h (N, in).
  Product backward_input_gelu(const Context& c, const UnitTensors& w, Tensor dh, Tensor dy, Tensor h) const;

  // dw accumulates; unless `add`, its matrix is written.
  void backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, const Measured& dy,
                       const Measured& x, bool add) const;

 private:
  // A factor in 8 bits, in scratch.
  struct Factor {
    Tensor values;   // straight, or transposed
    Tensor unscale;  // (1) f32
  };
  enum class Form : uint8_t { straight, transposed };
  // Casts rows of x, whose scale is that of all parts: take_scale() first.
  static void take_scale(const Context& c, const Measured& x) { c.edge.take_largest(c.s, x.scale.amax); }
  static Factor cast(const Context& c, const Measured& x, Interval rows, DType type, Form form);
  // Weights may have been cast before, once for a whole step.
  Factor cast_weight(const Context& c, const UnitTensors& w, Form form) const;

  // Returns y (M, N) = x b^T + bias, by rows of y and x, which is cast to `type`.
  static Product fp8_product(const Context& c, Tensor y, const Measured& x, DType type, const Factor& b, Tensor bias);

  // Returns the bias if it is part of the product, else an empty tensor.
  Tensor own_bias(const UnitTensors& t) const { return bias_in_residual_ ? Tensor{} : t[bias_]; }

  Param weight_, bias_{};
  Adapter adapter_{};
  Split split_;
  bool bias_in_residual_;
};

}  // namespace megalith
