#include "trainer/model/embedding.h"

#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace megalith {

void Embedding::forward(const Context& c, const EmbeddingWeights& w, Tensor tokens, Tensor x) const {
  const auto scope = c.scratch.scope();
  const int64_t N = tokens.numel();
  const Tensor h = x.rows() == N ? x : c.scratch.tensor(x.dtype(), {N, x.cols()});
  // A row is whole where its token is held and 0 elsewhere, so that leaving adds it up exactly.
  embedding_forward(c.s, h, tokens, w.wte, w.wpe, T_, part_, c.starts);
  const Tensor sum = c.edge.leave(c.s, c.scratch, h);
  if (c.dropout.active())
    dropout(c.s, x, sum, c.dropout);
  else if (sum.raw() != x.raw())
    copy(c.s, x, sum);
}

void Embedding::forward(const Context& c, const EmbeddingWeights& w, Tensor tokens, std::span<const Run> runs,
                        Tensor x) const {
  int64_t row = 0;
  for (const Run& run : runs) {
    const int64_t begin = row;
    row += run.count;
    embedding_forward(c.s, x.rows(begin, row), tokens.flat(begin, row), w.wte,
                      w.wpe.rows(run.position, run.position + run.count), run.count, part_);
  }
  const auto scope = c.scratch.scope();
  const Tensor sum = c.edge.leave(c.s, c.scratch, x);
  if (sum.raw() != x.raw()) copy(c.s, x, sum);
}

void Embedding::backward(const Context& c, const EmbeddingWeights& dw, Tensor tokens, Tensor dx) const {
  const auto scope = c.scratch.scope();
  if (c.dropout.active()) dropout(c.s, dx, dx, c.dropout);
  embedding_backward(c.s, dw.wte, dw.wpe, c.edge.leave_backward(c.s, c.scratch, dx), tokens, T_, part_, c.starts);
}

}  // namespace megalith
