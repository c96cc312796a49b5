// The top of the model: logits = ln_f(x) wte^T, the loss, and their gradients in one pass. The logits exist for a chunk
// of rows at a time and are overwritten with their gradient, so neither all of them nor a copy is ever in memory.
#pragma once

#include "trainer/model/edge.h"

namespace megalith {

// Weights in the compute dtype, or gradients in f32.
struct HeadWeights {
  Tensor ln_w, ln_b;  // (C)
  Tensor wte;         // (columns, C), the embedding's
};

class Head {
 public:
  // N rows of `columns` logits, those of the vocabulary that are here and padding; `rows` of them at a time.
  Head(int64_t N, int64_t columns, int64_t rows) : N_(N), columns_(columns), rows_(rows) {}

  // losses (N) f32 written, 0 where the target is -1; x (R, C); targets (N) i32.
  void loss(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, Tensor losses) const;

  // The same; dx (R, C) written and dw accumulates, both of scale * sum(losses). Unless `add`, dw.wte is written.
  void loss_and_gradient(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, const GradientScale& scale,
                         Tensor losses, Tensor dx, const HeadWeights& dw, bool add) const;

  // stats (3, N) f32 written, of each row as Edge::softmax does; what it makes of a target of -1 means nothing.
  void softmax(const Context& c, const HeadWeights& w, Tensor x, Tensor targets, Tensor stats) const;

  // logits (n, columns) written, of n rows x (n, C).
  void logits(const Context& c, const HeadWeights& w, Tensor x, Tensor logits) const;

 private:
  template <class Use>
  void in_chunks(const Context& c, Tensor h, Tensor wte, Use use) const;

  int64_t N_, columns_, rows_;
};

}  // namespace megalith
