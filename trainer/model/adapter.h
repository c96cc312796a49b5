// A low-rank adapter of a frozen linear layer (linear.h), which adds to the layer's output: y += scale * B (A
// dropout(x)) (Hu et al., LoRA, arXiv 2106.09685, section 4.1). Parts of the layer's output may have separate adapters;
// others may have none.
//
// If a layer is split by its output features, every part has A, and B is split; the gradient of A is a sum over parts.
// If it is split by its input features, A is split, and every part has B, whose gradient is a sum over parts, as the
// layer's output is. So neither needs a sum in a pass in which the layer has none.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "kernels/linear/low_rank.h"
#include "kernels/tensor/interval.h"
#include "trainer/model/layer.h"

namespace megalith {

class Adapter {
 public:
  // The layer's shape, as in Linear::Shape.
  struct Layer {
    int64_t in = 0, out = 0;  // global
    Split split = Split::none;
    std::vector<RowGroup> row_groups{};
  };
  // No adapter: converts to false.
  Adapter() = default;
  // Declares `name`.lora_A.weight (parts * rank, in), from normal(0, 1 / sqrt(3 in)), which has the deviation of PEFT's
  // uniform distribution; `name`.lora_B.weight (rows with an adapter, rank), from 0; and a dropout. Does nothing unless
  // the config gives the layer an adapter. `name` is "h.0.attn.c_attn".
  Adapter(Declarations& model, const std::string& name, const Layer& layer, const ModelConfig& config);

  explicit operator bool() const { return a_.index >= 0; }

  // y (N, out) accumulates; x (N, in). All sizes here and below are local.
  void add(const Context& c, const UnitTensors& w, Tensor y, Tensor x) const;
  // dx (N, in) accumulates; dy (N, out).
  void add_backward_input(const Context& c, const UnitTensors& w, Tensor dx, Tensor dy) const;
  // dw accumulates or, unless `add`, is written.
  void backward_weight(const Context& c, const UnitTensors& w, const UnitTensors& dw, Tensor dy, Tensor x,
                       bool add) const;

 private:
  AdaptedRows rows(int64_t parts) const;  // rows of one of this many parts
  Dropout dropout(const Context& c, int64_t columns) const;
  // These return tensors in scratch, or x itself.
  Tensor dropped(const Context& c, Tensor x) const;
  Tensor inner(const Context& c, const UnitTensors& w, Tensor x) const;            // x A^T (N, parts * rank)
  Tensor wide(const Context& c, const UnitTensors& w, int64_t outputs) const;      // scale * B, spread (low_rank.h)
  Tensor inner_gradient(const Context& c, const UnitTensors& w, Tensor dy) const;  // the gradient of inner()

  Layer layer_;                      // row_groups is never empty
  std::vector<Interval> adapted_{};  // among these, the groups that share an adapter
  Param a_{}, b_{};
  double scale_ = 1;
  int32_t site_ = 0;
};

}  // namespace megalith
