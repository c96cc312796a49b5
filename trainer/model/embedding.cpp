#include "trainer/model/embedding.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"

namespace megalith {

// Rows of a part are padded to 16 bytes of bf16 logits and, if that costs little, to whole tiles of a GPU's GEMM, since
// the head may use the embedding as well.
ParamSpec token_matrix(const std::string& name, const ModelConfig& config) {
  return {.name = name,
          .shape = {config.vocab, config.hidden},
          .init_std = config.initial_std,
          .decay = true,
          .multiplies = true,
          .split = Split::rows,
          .row_multiple = config.vocab >= 8192 ? 128 : 8};
}

// Initial values as in GPT-2: positions have half the deviation of tokens (0.01 and 0.02 in src/model.py of
// openai/gpt-2).
Embedding::Embedding(Declarations& model, const ModelConfig& config) {
  units_.push_back(model.begin_unit("token embedding"));
  ParamSpec table = token_matrix("wte.weight", config);
  table.multiplies = config.tied_head;
  table_ = model.parameter(std::move(table));
  if (config.positions == Positions::learned) {
    units_.push_back(model.begin_unit("position embedding"));
    positions_ = model.parameter({.name = "wpe.weight",
                                  .shape = {config.context, config.hidden},
                                  .init_std = config.initial_std / 2,
                                  .decay = true});
  }
  site_ = model.dropout_site();
}

void Embedding::forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens, Tensor x) const {
  const auto scope = c.scratch.scope();
  const int64_t N = tokens.numel();
  const Tensor h = x.rows() == N ? x : c.scratch.tensor(x.dtype(), {N, x.cols()});
  // A row is complete where its token is held and 0 elsewhere, so that summing over ranks is exact.
  launch(c.s, EmbeddingForward{.y = h,
                               .tokens = tokens,
                               .wte = w[0][table_],
                               .wpe = positions(w),
                               .T = c.pass.T,
                               .part = c.pass.vocabulary,
                               .starts = c.starts});
  const Tensor sum = c.edge.leave(c.s, c.scratch, h);
  if (c.dropout.active())
    launch(c.s, ApplyDropout{.y = x, .x = sum, .dropout = c.dropout_at(site_)});
  else if (sum.raw() != x.raw())
    launch(c.s, Copy{.y = x, .x = sum});
}

void Embedding::forward(const Context& c, std::span<const UnitTensors> w, Tensor tokens,
                        std::span<const PositionRange> runs, Tensor x) const {
  const Tensor table = positions(w);
  int64_t row = 0;
  for (const PositionRange& run : runs) {
    const int64_t begin = row;
    row += run.count;
    launch(c.s, EmbeddingForward{.y = x.rows(begin, row),
                                 .tokens = tokens.flat(begin, row),
                                 .wte = w[0][table_],
                                 .wpe = table.empty() ? table : table.rows(run.first, run.first + run.count),
                                 .T = run.count,
                                 .part = c.pass.vocabulary});
  }
  const auto scope = c.scratch.scope();
  const Tensor sum = c.edge.leave(c.s, c.scratch, x);
  if (sum.raw() != x.raw()) launch(c.s, Copy{.y = x, .x = sum});
}

void Embedding::backward(const Context& c, std::span<const UnitTensors> dw, Tensor tokens, Tensor dx) const {
  const auto scope = c.scratch.scope();
  if (c.dropout.active()) launch(c.s, ApplyDropout{.y = dx, .x = dx, .dropout = c.dropout_at(site_)});
  launch(c.s, EmbeddingBackward{.dwte = dw[0][table_],
                                .dwpe = positions(dw),
                                .dy = c.edge.leave_backward(c.s, c.scratch, dx),
                                .tokens = tokens,
                                .T = c.pass.T,
                                .part = c.pass.vocabulary,
                                .starts = c.starts});
}

}  // namespace megalith
