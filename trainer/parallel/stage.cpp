#include "trainer/parallel/stage.h"

#include "kernels/elementwise/elementwise.h"
#include "trainer/parallel/documents.h"
#include "trainer/program/action_number.h"

namespace megalith {

namespace {

// An evaluation of two microbatches uses as much memory as one of any number.
Needs needs_with_evaluation(const Plan& plan, const Program& training) {
  const Program evaluation = evaluation_program(plan, 2);
  return needs_of(plan, {&training, &evaluation});
}

// Returns Observer's name for the output of a layer; layer -1 is the embedding.
std::string output_name(int64_t layer) { return layer < 0 ? "embedding" : fmt::format("h.{}", layer); }

}  // namespace

Stage::Stage(const Plan& plan, Runtime& runtime, bool training)
    : plan_(plan),
      runtime_(runtime),
      model_(plan.model),
      training_(training ? training_program(plan) : Program{}),
      parts_(has_graphs(plan) ? parts_of(plan, training_) : ProgramParts{}),
      needs_(needs_with_evaluation(plan, training_)),
      sharding_(plan, runtime, needs_, training),
      edge_(make_edge(plan, runtime.mesh)),
      graphs_(parts_.graphs) {
  Arena& arena = runtime.memory[MemoryClass::saved];
  const int64_t N = plan.rows();
  loss_ = arena.tensor(DType::f64, {1});
  if (training && plan.masked && plan.chunks.back().last) share_ = arena.tensor(DType::f64, {1});
  if (training && plan.chunks.back().last) losses_ = arena.tensor(DType::f64, {plan.batch.num_microbatches()});
  for (int64_t i = 0; i < needs_.residuals; i++)
    residuals_.push_back({arena.tensor(plan.residual, {plan.pass.rows, plan.model.hidden}), {}});
  Arena& host = runtime.memory.at(MemoryClass::saved, MemoryPlace::host);
  for (int64_t i = 0; i < needs_.host; i++)
    host_.push_back(host.tensor(plan.residual, {plan.pass.rows, plan.model.hidden}));
  allocate_saved();
  for (int64_t i = 0; i < needs_.batches; i++) {
    batches_.push_back({arena.tensor(DType::i32, {N}), arena.tensor(DType::i32, {N}), {}, {}, {}});
    if (plan.chunks.back().last) batches_.back().losses = arena.tensor(DType::f32, {N});
    if (plan.isolates_documents) batches_.back().starts = arena.tensor(DType::i32, {plan.pass.B, plan.pass.T});
    if (plan.draws_from_memory) batches_.back().drawn = arena.tensor(DType::i32, {1 + model_.dropout_sites(), 2});
  }
}

void Stage::allocate_saved() {
  Arena& arena = runtime_.memory[MemoryClass::saved];
  const Block& block = model_.block(0);
  const PassTypes types = plan_.types();
  inputs_.resize(static_cast<size_t>(needs_.inputs));
  for (BlockSaved& inputs : inputs_) block.allocate_inputs(arena, types, plan_.pass, inputs);
  const bool in_halves = !inputs_.empty();
  saved_.resize(static_cast<size_t>(needs_.saved));
  for (LayerMemory& kept : saved_) {
    if (in_halves && plan_.kept == Kept::all) kept.saved = inputs_.front();  // it has memory, and enough
    block.allocate(arena, types, plan_.pass, plan_.kept, kept.saved);
    if (!in_halves) continue;
    kept.gradients = block.allocate_gradients(arena, types, plan_.pass, kept.saved);
    if (needs_.apart > 0) kept.apart = arena.tensor(DType::f32, {needs_.apart});
  }
}

void Stage::train(BatchContext batch) {
  if (!losses_.empty()) launch(runtime_.stream, Fill{.y = losses_, .value = 0});
  // With an observer or a follower, instructions run one by one.
  if (graphs_.empty() || observer_ || follower_) return run(training_, std::move(batch));
  begin(std::move(batch));
  for (const ProgramPart& part : parts_.parts) {
    if (part.graph == Instruction::none)
      obey(training_, part);
    else
      runtime_.stream.replay(graphs_[static_cast<size_t>(part.graph)], [&] { obey(training_, part); });
  }
}

void Stage::evaluate(BatchContext batch) {
  const Program program = evaluation_program(plan_, batch.batch.num_microbatches());
  run(program, std::move(batch));
}

void Stage::begin(BatchContext batch) {
  batch_ = std::move(batch);
  const int64_t sequences = batch_.batch.batch;
  counted_ = plan_.masked && batch_.feed.counted ? batch_.feed.counted({0, sequences}) : sequences * plan_.pass.T;
  if (!share_.empty())
    runtime_.stream.upload("load_share", {share_}, [&](std::span<const Tensor> host) {
      *host[0].data<double>() = counted_ > 0 ? 1.0 / static_cast<double>(counted_) : 0.0;
    });
  launch(runtime_.stream, Fill{.y = loss_, .value = 0});
}

void Stage::obey(const Program& program, const ProgramPart& part) {
  for (size_t at = part.begin; at < part.end; at++) obey(program[at]);
}

void Stage::run(const Program& program, BatchContext batch) {
  begin(std::move(batch));
  for (const Instruction& i : program) {
    if (follower_) follower_(&i);
    obey(i);
  }
  if (follower_) follower_(nullptr);
}

void Stage::obey(const Instruction& i) {
  using Op = Instruction::Op;
  const auto unit = static_cast<size_t>(i.unit), slot = static_cast<size_t>(i.slot);
  Trace& trace = runtime_.stream.trace();
  if (trace.level() == TraceLevel::everything) trace.set_part(action_number(plan_, i));
  switch (i.op) {
    case Op::cast: return sharding_.cast();
    case Op::gather: return sharding_.gather(unit, slot, i.fp8);
    case Op::await_gather: return sharding_.await_gather(slot);
    case Op::zero: return sharding_.zero(unit, i.slot, i.all);
    case Op::scatter: return sharding_.scatter(unit, slot, i.add);
    case Op::relay: return sharding_.relay(unit, slot);
    case Op::collect: return sharding_.collect(unit, slot, i.add);
    case Op::sum_copies: return sharding_.sum_copies(unit);
    case Op::share_sums: return sharding_.share_sums(unit);
    case Op::sum_tensor: return sharding_.sum_tensor(unit);
    case Op::await_sums: return sharding_.await_sums();
    case Op::sum_tied: return sharding_.sum_tied();
    case Op::receive: return receive(i);
    case Op::send: return send(i);
    case Op::offload:
      residual(i.y).transfer = runtime_.stream.to_host(host_[static_cast<size_t>(i.host)], residual(i.y).tensor);
      return;
    case Op::fetch:
      residual(i.y).transfer = runtime_.stream.to_device(residual(i.y).tensor, host_[static_cast<size_t>(i.host)]);
      return;
    case Op::await_transfer: return residual(i.y).transfer.wait();
    case Op::load: return load(i);
    case Op::embed: return embed(i);
    case Op::forward: return forward(i);
    case Op::recompute: return recompute(i);
    case Op::head: return head(i);
    case Op::head_loss: return head_loss(i);
    case Op::head_logits: FAIL("a stage does not compute logits; see Decoder");
    case Op::keep_loss:
      return launch(runtime_.stream, AccumulateSum{.out = losses_.flat(i.microbatch, i.microbatch + 1),
                                                   .x = batch(i).losses,
                                                   .scale = share_of_token()});
    case Op::count_loss:
      return launch(runtime_.stream, AccumulateSum{.out = loss_, .x = batch(i).losses, .scale = share_of_token()});
    case Op::backward: return backward(i);
    case Op::backward_input: return backward_input(i);
    case Op::backward_weight: return backward_weight(i);
    case Op::embed_backward: return embed_backward(i);
    default: return updater_(i);
  }
}

void Stage::receive(const Instruction& i) {
  Communicator& line = runtime_.mesh.channel(i.channel);
  const int from = (line.rank() + line.size() - direction_of(i.channel)) % line.size();
  residual(i.y).transfer = line.recv(runtime_.stream, residual(i.y).tensor, from);
}

void Stage::send(const Instruction& i) {
  Communicator& line = runtime_.mesh.channel(i.channel);
  const int to = (line.rank() + line.size() + direction_of(i.channel)) % line.size();
  residual(i.y).transfer = line.send(runtime_.stream, residual(i.y).tensor, to);
}

void Stage::load(const Instruction& i) {
  const Interval sequences = batch_.batch.sequences(i.microbatch);
  const Batch& b = batch(i);
  runtime_.stream.upload("load_tokens", {b.tokens, b.targets, b.starts, b.drawn}, [&](std::span<const Tensor> host) {
    batch_.feed.fill(sequences, host[0], host[1]);
    if (plan_.isolates_documents) {
      find_documents(host[2], host[0], plan_.end_of_text);
      for (int64_t s = sequences.begin; s < sequences.end && batch_.feed.begins; s++)
        begin_documents(host[2], s - sequences.begin, batch_.feed.begins(s));
    }
    if (plan_.draws_from_memory) write_drawn(host[3], dropout(i));
  });
}

void Stage::embed(const Instruction& i) {
  const Tensor y = residual(i.y).tensor;
  model_.embedding().forward(context(i), sharding_.weights(plan_.embedding), batch(i).tokens, y);
  show(output_name(-1), i, y, plan_.pass.first_row);
}

// Returns the tensors that the layer keeps, with its input.
BlockSaved Stage::kept(const Instruction& i) {
  BlockSaved kept = i.saved != Instruction::none ? saved_[static_cast<size_t>(i.saved)].saved : BlockSaved{};
  if (i.inputs != Instruction::none) kept.take_inputs(inputs_[static_cast<size_t>(i.inputs)], plan_.kept);
  kept.x = residual(i.x).tensor;
  return kept;
}

void Stage::forward(const Instruction& i) {
  const Context c = context(i);
  const Block& block = model_.block(i.layer);
  const auto scope = c.scratch.scope();
  BlockSaved saved = kept(i);
  block.allocate(c.scratch, plan_.types(), plan_.pass, Kept::all, saved);
  const Tensor y = residual(i.y).tensor;
  block.forward(c, sharding_.weights(static_cast<size_t>(i.unit), c.fp8), saved, y);
  show(output_name(i.layer), i, y, plan_.pass.first_row);
}

void Stage::recompute(const Instruction& i) {
  const Context c = context(i);
  const Block& block = model_.block(i.layer);
  const BlockSaved& saved = recomputed_.emplace_front(c.scratch, plan_, block, kept(i)).saved;
  const UnitTensors weights = sharding_.weights(static_cast<size_t>(i.unit), c.fp8);
  if (i.saved != Instruction::none && i.inputs != Instruction::none)
    launch(c.s, Copy{.y = inputs_[static_cast<size_t>(i.inputs)].attention.att, .x = saved.attention.att});
  if (i.saved != Instruction::none)
    block.recompute(c, weights, saved);
  else
    block.forward(c, weights, saved, i.y != Instruction::none ? residual(i.y).tensor : Tensor{});
}

void Stage::head(const Instruction& i) {
  const Batch& b = batch(i);
  const Tensor gradient = residual(i.y).tensor;
  model_.head().loss_and_gradient(
      context(i), sharding_.weights(plan_.head), residual(i.x).tensor, b.targets,
      {.factor = share_of_token(), .in_memory = batch_.loss_scale, .also_in_memory = share_}, b.losses, gradient,
      sharding_.gradients(plan_.head_gradients), i.add);
  show("loss", i, b.losses.view({b.losses.numel(), 1}), 0);
  show("d " + output_name(plan_.model.layers - 1), i, gradient, plan_.pass.first_row);
}

void Stage::head_loss(const Instruction& i) {
  const Context c = context(i);
  const Batch& b = batch(i);
  const std::vector<UnitTensors> w = sharding_.weights(plan_.head);
  if (!observer_) return model_.head().loss(c, w, residual(i.x).tensor, b.targets, b.losses);
  const auto scope = c.scratch.scope();
  const int64_t N = b.targets.numel();
  const Tensor stats = c.scratch.tensor(DType::f32, {3, N});
  model_.head().softmax(c, w, residual(i.x).tensor, b.targets, stats);
  launch(c.s, CrossEntropyLoss{.losses = b.losses, .stats = stats, .targets = b.targets});
  show("loss", i, b.losses.view({N, 1}), 0);
  show("largest logit", i, stats.flat(0, N).view({N, 1}), 0);
  show("target's logit", i, stats.flat(2 * N, 3 * N).view({N, 1}), 0);
}

void Stage::backward(const Instruction& i) {
  const auto unit = static_cast<size_t>(i.unit);
  const Tensor gradient = residual(i.y).tensor;
  const bool recomputed = i.saved == Instruction::none;
  const BlockSaved saved = recomputed ? recomputed_.front().saved : kept(i);
  const Context c = context(i);
  model_.block(i.layer).backward(c, sharding_.weights(unit, c.fp8), saved, sharding_.gradients(unit), gradient, i.add);
  if (recomputed) recomputed_.pop_front();
  show("d " + output_name(i.layer - 1), i, gradient, plan_.pass.first_row);
}

void Stage::backward_input(const Instruction& i) {
  const Context c = context(i);
  const auto unit = static_cast<size_t>(i.unit);
  const Block& block = model_.block(i.layer);
  const Tensor gradient = residual(i.y).tensor;
  const bool recomputed = i.saved == Instruction::none;
  const BlockSaved saved = recomputed ? recomputed_.front().saved : kept(i);
  {
    const auto scope = c.scratch.scope();
    LayerMemory held;
    if (i.held != Instruction::none)
      held = saved_[static_cast<size_t>(i.held)];
    else
      held.gradients = block.allocate_gradients(c.scratch, plan_.types(), plan_.pass, {});
    UnitTensors gradients;
    if (i.apart) {
      launch(c.s, Fill{.y = held.apart, .value = 0});
      gradients = sharding_.gradients_apart(unit, held.apart);
    } else {
      gradients = sharding_.gradients(unit);
    }
    block.backward_input(c, sharding_.weights(unit, c.fp8), saved, gradients, gradient, held.gradients);
  }
  if (recomputed) recomputed_.pop_front();
  show("d " + output_name(i.layer - 1), i, gradient, plan_.pass.first_row);
}

void Stage::backward_weight(const Instruction& i) {
  const auto unit = static_cast<size_t>(i.unit);
  const LayerMemory& held = saved_[static_cast<size_t>(i.held)];
  if (i.apart) sharding_.add_apart(unit, held.apart);
  const Context c = context(i);
  const UnitTensors weights = plan_.model.adapter.in_use() ? sharding_.weights(unit, c.fp8) : UnitTensors{};
  model_.block(i.layer).backward_weight(c, weights, inputs_[static_cast<size_t>(i.inputs)], sharding_.gradients(unit),
                                        held.gradients, i.add);
}

void Stage::embed_backward(const Instruction& i) {
  model_.embedding().backward(context(i), sharding_.gradients(plan_.embedding), batch(i).tokens, residual(i.y).tensor);
}

Dropout Stage::dropout(const Instruction& i) const {
  Dropout d = batch_.dropout;
  d.first_row = batch_.first_row + batch_.batch.sequences(i.microbatch).begin * plan_.pass.T;
  return d;
}

Context Stage::context(const Instruction& i) {
  const bool has_batch = i.batch != Instruction::none;
  Dropout d = dropout(i);
  if (plan_.draws_from_memory && has_batch) {
    d.drawn = batch(i).drawn;
    d.first_row = 0;
  }
  d.first_row += plan_.pass.first_row;
  return {.s = runtime_.stream,
          .scratch = runtime_.memory[MemoryClass::scratch],
          .edge = *edge_,
          .pass = plan_.pass,
          .dropout = d,
          .adapter_dropout = batch_.adapter_dropout,
          .fp8 = i.layer != Instruction::none && plan_.has_fp8(i.layer),
          .filled_rows = batch_.batch.sequences(i.microbatch).size() * plan_.pass.T,
          .starts = has_batch ? batch(i).starts : Tensor{}};
}

// Values that change from step to step are in memory (share_), since launches may be repeated unchanged.
double Stage::share_of_token() const {
  return plan_.masked ? 1.0 : 1.0 / static_cast<double>(batch_.batch.batch * plan_.pass.T);
}

void Stage::show(const std::string& name, const Instruction& i, Tensor rows, int64_t first_row_here) const {
  if (!observer_) return;
  const int64_t T = plan_.pass.T;
  const Interval sequences = batch_.batch.sequences(i.microbatch);
  const Interval here = intersect({first_row_here, first_row_here + rows.rows()}, {0, sequences.size() * T});
  if (here.size() > 0)
    observer_(name, sequences.begin * T + here.begin,
              rows.rows(here.begin - first_row_here, here.end - first_row_here));
}

}  // namespace megalith
