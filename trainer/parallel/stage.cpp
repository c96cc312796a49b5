#include "trainer/parallel/stage.h"

#include "kernels/elementwise.h"

namespace megalith {

namespace {

std::unique_ptr<Edge> make_edge(const Plan& plan, const Mesh& mesh) {
  Communicator& group = mesh.channel(Channel::tensor);
  if (plan.sequence_parallel) return std::make_unique<SequenceEdge>(group, plan.vocabulary);
  if (plan.tensor.degree > 1) return std::make_unique<TensorEdge>(group, plan.vocabulary);
  return std::make_unique<WholeEdge>(plan.vocabulary);
}

// What Observer calls the output of block i of a chunk; i = -1 is the last block of the chunk before.
std::string layer_name(const Chunk& chunk, int64_t i) { return fmt::format("h.{}", chunk.first_layer + i); }

}  // namespace

Stage::Stage(const Plan& plan, Runtime& runtime, bool training)
    : plan_(plan),
      runtime_(runtime),
      sharding_(plan, runtime, training),
      edge_(make_edge(plan, runtime.mesh)),
      embedding_(plan.block.attention.T, plan.vocabulary),
      head_(plan.rows(), plan.logit_columns, plan.head_chunks),
      loss_(runtime.memory[MemoryClass::saved].tensor(DType::f64, {1})) {
  for (const Chunk& chunk : plan.chunks) parts_.push_back(make_part(chunk, training));
}

Stage::Part Stage::make_part(const Chunk& chunk, bool training) {
  Arena& arena = runtime_.memory[MemoryClass::saved];
  const int64_t N = plan_.rows();
  const auto residual = [&] { return arena.tensor(plan_.compute, {plan_.block.rows, plan_.block.C}); };
  const auto buffers = [&](int64_t count) {
    std::vector<Buffer> all;
    for (int64_t i = 0; i < count; i++) all.push_back({residual(), {}});
    return all;
  };

  Part part{.chunk = &chunk, .blocks = {}, .slots = {}, .inputs = {}, .outputs = {}, .gradients = {}};
  for (int64_t i = 0; i < chunk.num_layers; i++) part.blocks.emplace_back(chunk.first_layer + i, plan_.block);
  // Where messages come or go there are more than are in use, so that they travel while the others are worked on: one
  // that comes, and one that goes, or, where the next stage may first have to do other chunks, as many as it may fall
  // behind.
  const int64_t live = training ? chunk.live : 1, behind = plan_.chunks.size() > 1 ? live : 1;
  part.inputs = buffers(live + (chunk.first ? 0 : 1));
  part.outputs = buffers(chunk.last ? 1 : 1 + behind);
  if (training) part.gradients = buffers(chunk.last ? live + (chunk.first ? 0 : behind) : 2 + behind);
  part.slots.resize(static_cast<size_t>(live));
  for (Slot& slot : part.slots) {
    if (chunk.first || chunk.last) {
      slot.tokens = arena.tensor(DType::i32, {N});
      slot.targets = arena.tensor(DType::i32, {N});
    }
    if (chunk.last) slot.losses = arena.tensor(DType::f32, {N});
    for (int64_t i = 1; i < chunk.num_layers; i++) slot.x.push_back(residual());
    if (training && !plan_.recompute)
      for (const Block& block : part.blocks) slot.saved.push_back(block.allocate(arena, plan_.compute));
  }
  return part;
}

void Stage::train(BatchContext batch) {
  begin(std::move(batch), Mode::train);
  sharding_.begin_gradients();
  run(plan_.schedule);
  sharding_.finish_gradients();
}

void Stage::evaluate(BatchContext batch) {
  PipelineShape pipeline = plan_.pipeline;
  pipeline.microbatches = batch.batch.num_microbatches();
  begin(std::move(batch), Mode::evaluate);
  run(forward_schedule(pipeline, runtime_.mesh.coordinate(Axis::pipeline)));
}

void Stage::run_layers(BatchContext batch) {
  CHECK(plan_.mesh.pipeline == 1, "one of {} stages cannot run all layers", plan_.mesh.pipeline);
  begin(std::move(batch), Mode::layers);
  run(std::vector<Action>{{Action::Kind::forward, 0}});
}

void Stage::begin(BatchContext batch, Mode mode) {
  batch_ = std::move(batch);
  mode_ = mode;
  fill(runtime_.stream, loss_, 0);
}

void Stage::run(std::span<const Action> actions) {
  leases_.clear();
  next_lease_ = 0;
  for (const Action& action : actions)
    for (size_t unit : leases_of(action)) leases_.push_back(unit);

  if (!actions.empty()) begin_receive(actions.front());
  for (size_t i = 0; i < actions.size(); i++) {
    const Action& action = actions[i];
    if (Buffer* buffer = incoming(action)) buffer->message.wait();
    if (i + 1 < actions.size()) begin_receive(actions[i + 1]);
    Part& part = parts_[static_cast<size_t>(action.chunk)];
    action.kind == Action::Kind::forward ? forward(part, action.microbatch) : backward(part, action.microbatch);
  }
  for (Part& part : parts_)
    for (auto* buffers : {&part.outputs, &part.gradients})
      for (Buffer& buffer : *buffers) buffer.message.wait();
}

Stage::Buffer* Stage::incoming(const Action& action) {
  Part& part = parts_[static_cast<size_t>(action.chunk)];
  if (action.kind == Action::Kind::forward) return part.chunk->first ? nullptr : &of(part.inputs, action.microbatch);
  return part.chunk->last ? nullptr : &of(part.gradients, action.microbatch);
}

void Stage::begin_receive(const Action& action) {
  Buffer* buffer = incoming(action);
  if (!buffer) return;
  const bool forward = action.kind == Action::Kind::forward;
  Communicator& line = runtime_.mesh.channel(forward ? Channel::forward : Channel::backward);
  const int from = (line.rank() + (forward ? line.size() - 1 : 1)) % line.size();
  buffer->message.wait();
  buffer->message = line.recv(runtime_.stream, buffer->tensor, from);
}

void Stage::send(Channel channel, Buffer& buffer) {
  Communicator& line = runtime_.mesh.channel(channel);
  const int to = (line.rank() + (channel == Channel::forward ? 1 : line.size() - 1)) % line.size();
  buffer.message = line.send(runtime_.stream, buffer.tensor, to);
}

std::vector<size_t> Stage::leases_of(const Action& action) const {
  const Chunk& chunk = *parts_[static_cast<size_t>(action.chunk)].chunk;
  const auto n = static_cast<size_t>(chunk.num_layers);
  std::vector<size_t> units;
  if (action.kind == Action::Kind::backward) {
    for (size_t i = n; i-- > 0;) units.push_back(chunk.first_unit + i);
    return units;
  }
  if (chunk.first) units = {plan_.tokens, plan_.positions};
  for (size_t i = 0; i < n; i++) units.push_back(chunk.first_unit + i);
  if (chunk.last && mode_ != Mode::layers) units.insert(units.end(), {plan_.norm, plan_.tokens});
  return units;
}

Sharding::Lease Stage::lease(size_t unit) {
  CHECK(next_lease_ < leases_.size() && leases_[next_lease_] == unit, "{} is leased out of turn",
        plan_.units[unit].name);
  Sharding::Lease lease = sharding_.lease(unit);
  if (++next_lease_ < leases_.size()) sharding_.prefetch(leases_[next_lease_]);
  return lease;
}

Context Stage::context(int64_t microbatch) {
  Dropout dropout = batch_.dropout;
  dropout.first_row =
      batch_.first_row + batch_.batch.sequences(microbatch).begin * plan_.block.attention.T + plan_.block.first_row;
  return {runtime_.stream, runtime_.memory[MemoryClass::scratch], *edge_, dropout};
}

void Stage::show(const std::string& name, int64_t microbatch, Tensor rows, int64_t first_row_here) const {
  if (!observer_ || mode_ != Mode::train) return;
  const int64_t T = plan_.block.attention.T;
  const Interval sequences = batch_.batch.sequences(microbatch);
  const Interval here = intersect({first_row_here, first_row_here + rows.rows()}, {0, sequences.size() * T});
  if (here.size() > 0)
    observer_(name, sequences.begin * T + here.begin,
              rows.rows(here.begin - first_row_here, here.end - first_row_here));
}

double Stage::loss_scale() const { return 1.0 / static_cast<double>(batch_.batch.batch * plan_.block.attention.T); }

void Stage::forward(Part& part, int64_t microbatch) {
  const Context c = context(microbatch);
  const Chunk& chunk = *part.chunk;
  Slot& slot = of(part.slots, microbatch);
  Tensor x = of(part.inputs, microbatch).tensor;
  if (chunk.first || chunk.last) {
    const Interval sequences = batch_.batch.sequences(microbatch);
    c.s.upload("load_tokens", {slot.tokens, slot.targets},
               [&](std::span<const Tensor> host) { batch_.feed(sequences, host[0], host[1]); });
  }
  if (chunk.first) {
    const auto tokens = lease(plan_.tokens), positions = lease(plan_.positions);
    embedding_.forward(c, {tokens.tensors().wte, positions.tensors().wpe}, slot.tokens, x);
    show("embedding", microbatch, x, plan_.block.first_row);
  }
  Buffer& output = of(part.outputs, microbatch);
  output.message.wait();
  for (size_t i = 0; i < part.blocks.size(); i++) {
    const Block& block = part.blocks[i];
    const auto weights = lease(chunk.first_unit + i);
    const auto scope = c.scratch.scope();
    const bool save = mode_ == Mode::train && !plan_.recompute;
    BlockSaved saved = save ? slot.saved[i] : block.allocate(c.scratch, plan_.compute);
    saved.x = x;
    const Tensor y = i + 1 < part.blocks.size() ? slot.x[i] : output.tensor;
    block.forward(c, weights.tensors(), saved, y);
    show(layer_name(chunk, static_cast<int64_t>(i)), microbatch, y, plan_.block.first_row);
    x = y;
  }
  if (!chunk.last)
    send(Channel::forward, output);
  else if (mode_ != Mode::layers)
    head(part, microbatch);
}

void Stage::head(Part& part, int64_t microbatch) {
  const Context c = context(microbatch);
  Slot& slot = of(part.slots, microbatch);
  const auto norm = lease(plan_.norm), tokens = lease(plan_.tokens);
  const HeadWeights w{norm.tensors().lnf_w, norm.tensors().lnf_b, tokens.tensors().wte};
  const Tensor x = of(part.outputs, microbatch).tensor;
  if (mode_ == Mode::train) {
    Buffer& gradient = of(part.gradients, microbatch);
    gradient.message.wait();
    const UnitTensors dnorm = sharding_.gradients(plan_.norm);
    const HeadWeights dw{dnorm.lnf_w, dnorm.lnf_b, sharding_.gradients(plan_.tokens).wte};
    head_.loss_and_gradient(c, w, x, slot.targets, loss_scale(), slot.losses, gradient.tensor, dw);
    show("loss", microbatch, slot.losses.view({slot.losses.numel(), 1}), 0);
    show("d " + layer_name(*part.chunk, part.chunk->num_layers - 1), microbatch, gradient.tensor,
         plan_.block.first_row);
    sharding_.reduce(plan_.norm, is_last(microbatch));
    if (!parts_.front().chunk->first) sharding_.reduce(plan_.tokens, is_last(microbatch));
  } else {
    head_.loss(c, w, x, slot.targets, slot.losses);
  }
  accumulate_sum(c.s, loss_, slot.losses, loss_scale());
}

void Stage::backward(Part& part, int64_t microbatch) {
  const Context c = context(microbatch);
  const Chunk& chunk = *part.chunk;
  Slot& slot = of(part.slots, microbatch);
  Buffer& gradient = of(part.gradients, microbatch);
  for (size_t i = part.blocks.size(); i-- > 0;) {
    const Block& block = part.blocks[i];
    const auto weights = lease(chunk.first_unit + i);
    const UnitTensors& w = weights.tensors();
    const UnitTensors dw = sharding_.gradients(chunk.first_unit + i);
    const auto scope = c.scratch.scope();
    BlockSaved saved = plan_.recompute ? block.allocate(c.scratch, plan_.compute) : slot.saved[i];
    saved.x = i > 0 ? slot.x[i - 1] : of(part.inputs, microbatch).tensor;
    if (plan_.recompute)  // the same numbers again
      block.forward(c, w, saved, c.scratch.tensor(plan_.compute, saved.x.shape()));
    block.backward(c, w, saved, dw, gradient.tensor);
    const bool to_embedding = chunk.first && i == 0;
    show(to_embedding ? "d embedding" : "d " + layer_name(chunk, static_cast<int64_t>(i) - 1), microbatch,
         gradient.tensor, plan_.block.first_row);
    sharding_.reduce(chunk.first_unit + i, is_last(microbatch));
  }
  if (!chunk.first) {
    send(Channel::backward, gradient);
    return;
  }
  const EmbeddingWeights dw{sharding_.gradients(plan_.tokens).wte, sharding_.gradients(plan_.positions).wpe};
  embedding_.backward(c, dw, slot.tokens, gradient.tensor);
  sharding_.reduce(plan_.tokens, is_last(microbatch));
  sharding_.reduce(plan_.positions, is_last(microbatch));
}

void Stage::logits(int64_t row, Tensor logits) {
  const auto norm = sharding_.lease(plan_.norm), tokens = sharding_.lease(plan_.tokens);
  head_.logits(context(0), {norm.tensors().lnf_w, norm.tensors().lnf_b, tokens.tensors().wte},
               parts_.back().outputs.front().tensor.rows(row, row + 1), logits);
}

}  // namespace megalith
