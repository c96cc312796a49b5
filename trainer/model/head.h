// The top of the model: logits = norm(x) matrix^T, the loss, and their gradients in one pass. The logits exist for a
// chunk of rows at a time (PassShape::head_rows) and are overwritten with their gradient, so neither all of them nor a
// copy is ever in memory.
#pragma once

#include <span>

#include "trainer/model/embedding.h"
#include "trainer/model/norm.h"

namespace megalith {

class Head {
 public:
  // Declares a unit for the final norm. The logits are products with the embedding's table, which is then tied, or with
  // the head's own matrix, another unit. Calls take the tensors of the norm's unit and of the matrix's, in this order.
  Head(Declarations& model, const ModelConfig& config, const Embedding& embedding);

  const std::vector<size_t>& units() const { return units_; }

  // losses (N) f32 written, 0 where the target is -1; x (R, C); targets (N) i32.
  void loss(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor targets, Tensor losses) const;

  // As above; dx (R, C) written and dw accumulates, both of scale * sum(losses). Unless `add`, dw's table is written.
  void loss_and_gradient(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor targets,
                         const GradientScale& scale, Tensor losses, Tensor dx, std::span<const UnitTensors> dw,
                         bool add) const;

  // stats (3, N) f32 written, as by Edge::softmax; rows with target -1 are unspecified.
  void softmax(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor targets, Tensor stats) const;

  // logits (n, local columns of the vocabulary, with padding) written, of n rows x (n, C).
  void logits(const Context& c, std::span<const UnitTensors> w, Tensor x, Tensor logits) const;

 private:
  Norm::Saved norm(const Context& c, std::span<const UnitTensors> w, Tensor x) const;
  Param declare_matrix(Declarations& model, const ModelConfig& config);
  template <class Use>
  void in_chunks(const Context& c, std::span<const UnitTensors> w, Tensor h, Use use) const;

  std::vector<size_t> units_;
  Norm norm_;
  Param matrix_;
};

}  // namespace megalith
