#include "trainer/parallel/stage.h"

#include "kernels/elementwise.h"

namespace megalith {

namespace {
constexpr size_t embedding_unit = 0;
size_t block_unit(size_t block) { return block + 1; }
}  // namespace

Stage::Stage(const Plan& plan, Runtime& runtime, bool training)
    : plan_(plan),
      runtime_(runtime),
      sharding_(plan, runtime, training),
      head_(plan.rows(), plan.model.vocab, plan.head_chunks) {
  const int64_t N = plan.rows(), C = plan.model.hidden;
  for (size_t i = 0; i < plan.num_blocks(); i++) blocks_.emplace_back(static_cast<int64_t>(i), plan.dims, C);

  Arena& arena = runtime.memory[MemoryClass::saved];
  loss_ = arena.tensor(DType::f64, {1});
  slots_.resize(static_cast<size_t>(plan.live_microbatches));
  for (Slot& slot : slots_) {
    slot.tokens = arena.tensor(DType::i32, {N});
    slot.targets = arena.tensor(DType::i32, {N});
    slot.losses = arena.tensor(DType::f32, {N});
    for (size_t i = 0; i <= plan.num_blocks(); i++) slot.x.push_back(arena.tensor(plan.compute, {N, C}));
    if (!training) continue;
    slot.dx = arena.tensor(plan.compute, {N, C});
    if (plan.recompute) continue;
    for (size_t i = 0; i < plan.num_blocks(); i++) {
      slot.saved.push_back(blocks_[i].allocate(arena, plan.compute));
      slot.saved.back().x = slot.x[i];
    }
  }
}

void Stage::begin(BatchContext batch) {
  begin_evaluation(std::move(batch));
  sharding_.begin_gradients();
}

void Stage::begin_evaluation(BatchContext batch) {
  batch_ = std::move(batch);
  fill(runtime_.stream, loss_, 0);
}

Context Stage::context(int64_t microbatch) {
  Dropout dropout = batch_.dropout;
  dropout.first_row = batch_.first_row + batch_.batch.sequences(microbatch).begin * plan_.dims.T;
  return {runtime_.stream, runtime_.memory[MemoryClass::scratch], edge_, dropout};
}

double Stage::loss_scale() const { return 1.0 / static_cast<double>(batch_.batch.batch * plan_.dims.T); }

void Stage::run_blocks(int64_t microbatch, bool save) {
  const Context c = context(microbatch);
  Slot& s = slot(microbatch);
  const Interval sequences = batch_.batch.sequences(microbatch);
  c.s.launch("load_tokens", {.bytes = static_cast<double>(2 * s.tokens.bytes())},
             [&] { batch_.feed(sequences, s.tokens, s.targets); });
  {
    const auto weights = sharding_.lease(embedding_unit);
    sharding_.prefetch(block_unit(0));
    embed(c, EmbeddingWeights::bind(weights.tensors()), s.tokens, plan_.dims.T, s.x[0]);
  }
  for (size_t i = 0; i < blocks_.size(); i++) {
    const auto weights = sharding_.lease(block_unit(i));
    sharding_.prefetch(block_unit(i + 1));  // after the last block that is the final norm
    const auto scope = c.scratch.scope();
    BlockSaved saved = save ? s.saved[i] : blocks_[i].allocate(c.scratch, plan_.compute);
    saved.x = s.x[i];
    blocks_[i].forward(c, BlockWeights::bind(weights.tensors()), saved, s.x[i + 1]);
  }
}

void Stage::forward(int64_t microbatch) {
  run_blocks(microbatch, !plan_.recompute);
  const Context c = context(microbatch);
  Slot& s = slot(microbatch);
  const size_t norm_unit = block_unit(blocks_.size());
  const auto norm = sharding_.lease(norm_unit);
  const auto embedding = sharding_.lease(embedding_unit);
  const bool last = microbatch + 1 == batch_.batch.num_microbatches();
  const HeadWeights dw = HeadWeights::bind(sharding_.gradients(norm_unit), sharding_.gradients(embedding_unit)[0]);
  head_.loss_and_gradient(c, HeadWeights::bind(norm.tensors(), embedding.tensors()[0]), s.x.back(), s.targets,
                          loss_scale(), s.losses, s.dx, dw);
  sharding_.reduce(norm_unit, last);
  accumulate_sum(c.s, loss_, s.losses, loss_scale());
}

void Stage::backward(int64_t microbatch) {
  const Context c = context(microbatch);
  Slot& s = slot(microbatch);
  const bool last = microbatch + 1 == batch_.batch.num_microbatches();
  for (size_t i = blocks_.size(); i-- > 0;) {
    const auto lease = sharding_.lease(block_unit(i));
    if (i > 0) sharding_.prefetch(block_unit(i - 1));
    const BlockWeights w = BlockWeights::bind(lease.tensors());
    const BlockWeights dw = BlockWeights::bind(sharding_.gradients(block_unit(i)));
    const auto scope = c.scratch.scope();
    BlockSaved saved;
    if (plan_.recompute) {
      saved = blocks_[i].allocate(c.scratch, plan_.compute);
      saved.x = s.x[i];
      blocks_[i].forward(c, w, saved, s.x[i + 1]);  // the same numbers again
    } else {
      saved = s.saved[i];
    }
    blocks_[i].backward(c, w, saved, dw, s.dx);
    sharding_.reduce(block_unit(i), last);
  }
  embed_backward(c, EmbeddingWeights::bind(sharding_.gradients(embedding_unit)), s.tokens, plan_.dims.T, s.dx);
  sharding_.reduce(embedding_unit, last);
}

void Stage::evaluate(int64_t microbatch) {
  run_blocks(microbatch, false);
  const Context c = context(microbatch);
  Slot& s = slot(microbatch);
  const auto norm = sharding_.lease(block_unit(blocks_.size()));
  const auto embedding = sharding_.lease(embedding_unit);
  head_.loss(c, HeadWeights::bind(norm.tensors(), embedding.tensors()[0]), s.x.back(), s.targets, s.losses);
  accumulate_sum(c.s, loss_, s.losses, loss_scale());
}

void Stage::logits(int64_t row, Tensor logits) {
  const Context c = context(0);
  const auto norm = sharding_.lease(block_unit(blocks_.size()));
  const auto embedding = sharding_.lease(embedding_unit);
  head_.logits(c, HeadWeights::bind(norm.tensors(), embedding.tensors()[0]), slots_[0].x.back().rows(row, row + 1),
               logits);
}

}  // namespace megalith
