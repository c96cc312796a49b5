#include "trainer/model/embedding.h"

#include "kernels/embedding.h"

namespace megalith {

EmbeddingWeights EmbeddingWeights::bind(std::span<const Tensor> t) {
  CHECK(t.size() == 2, "the embedding has 2 parameters, not {}", t.size());
  return {t[0], t[1]};
}

void embed(const Context& c, const EmbeddingWeights& w, Tensor tokens, int64_t T, Tensor x) {
  embedding_forward(c.s, x, tokens, w.wte, w.wpe, T, whole_vocabulary(w.wte.rows()));
  if (c.dropout.active()) dropout(c.s, x, x, c.dropout);
}

void embed_backward(const Context& c, const EmbeddingWeights& dw, Tensor tokens, int64_t T, Tensor dx) {
  if (c.dropout.active()) dropout(c.s, dx, dx, c.dropout);
  embedding_backward(c.s, dw.wte, dw.wpe, dx, tokens, T, whole_vocabulary(dw.wte.rows()));
}

}  // namespace megalith
