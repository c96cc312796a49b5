#include "trainer/program/program.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "trainer/program/chunk_memory.h"
#include "trainer/program/gathers.h"
#include "trainer/program/gradients.h"
#include "trainer/program/offload.h"
#include "trainer/program/update.h"

namespace megalith {

namespace {

using Op = Instruction::Op;
constexpr int32_t no_slot = Instruction::none;

// Numbers that are allocated and freed: the lowest free one is next.
class FreeNumbers {
 public:
  int32_t take() {
    const int32_t number = free_.empty() ? most_++ : *free_.begin();
    free_.erase(number);
    return number;
  }
  void give_back(int32_t number) { free_.insert(number); }

 private:
  int32_t most_ = 0;
  std::set<int32_t> free_;
};

// Tensors that a microbatch's layer keeps between the two halves of the backward pass, as numbers of Instruction, or
// none. Layers of all chunks share the memory, which is as large as its simultaneous use.
struct LayerKept {
  int32_t saved = no_slot, inputs = no_slot, held = no_slot;
};

// Lists the math of actions and its memory; for weights, only their uses: await_gather without a slot.
class Lister {
 public:
  enum class Mode { train, evaluate, logits };

  Lister(const Plan& plan, Mode mode, int64_t microbatches)
      : plan_(plan), mode_(mode), microbatches_(microbatches), memory_(lay_out(plan, mode == Mode::train)) {}

  // While one action runs, the next one's message is received. Sent messages are awaited when their memory is needed
  // again.
  Program run(const std::vector<Action>& actions) {
    std::optional<Gradients> gradients;
    if (mode_ == Mode::train) gradients_ = &gradients.emplace(plan_, list_);
    if (!actions.empty()) begin_receive(actions.front());
    for (size_t i = 0; i < actions.size(); i++) {
      const Action& action = actions[i];
      await(incoming(action));
      if (i + 1 < actions.size()) begin_receive(actions[i + 1]);
      switch (action.kind) {
        case Action::Kind::forward: forward(action); break;
        case Action::Kind::backward:
        case Action::Kind::backward_input: backward(action); break;
        case Action::Kind::backward_weight: backward_weight(action);
      }
    }
    for (const ChunkMemory& m : memory_)
      for (const Turns& sent : {m.outputs, m.gradients})
        for (int32_t y = sent.first; y < sent.first + sent.count; y++) await(y);
    if (gradients_) gradients_->finish();
    return std::move(list_);
  }

  // Returns for each residual whether it is the input of a group, which the group's backward pass reads.
  std::vector<bool> kept() const {
    std::vector<bool> kept;
    for (const ChunkMemory& m : memory_) {
      const Turns between{m.between, as_number(m.slots.count * (m.groups() - 1))};
      for (const Turns& of : {m.inputs, between}) {
        kept.resize(std::max(kept.size(), static_cast<size_t>(m.inside + as_number(m.group))));
        std::fill_n(kept.begin() + of.first, of.count, true);
      }
    }
    return kept;
  }

 private:
  const Chunk& chunk(const Action& a) const { return plan_.chunks[static_cast<size_t>(a.chunk)]; }
  const ChunkMemory& memory(const Action& a) const { return memory_[static_cast<size_t>(a.chunk)]; }
  bool last_microbatch(const Action& a) const { return a.microbatch + 1 == microbatches_; }

  void emit(const Action& a, Instruction i) {
    i.microbatch = as_number(a.microbatch);
    list_.push_back(i);
  }
  // The part in shared slots comes first, so that the next layer's is gathered while this layer computes.
  void use(size_t unit) {
    const auto await_gather = [&](size_t u) { list_.push_back({.op = Op::await_gather, .unit = as_number(u)}); };
    const std::optional<size_t> frozen = plan_.units[unit].frozen_part;
    const bool frozen_first = frozen && plan_.units[unit].keep_gathered;
    if (frozen_first) await_gather(*frozen);
    await_gather(unit);
    if (frozen && !frozen_first) await_gather(*frozen);
  }

  // Returns the residual that receives the action's message, or none.
  int32_t incoming(const Action& a) const {
    if (a.kind == Action::Kind::backward_weight) return no_slot;
    const Chunk& c = chunk(a);
    if (a.kind == Action::Kind::forward) return c.first || c.turns_before ? no_slot : memory(a).inputs.of(a.microbatch);
    return c.last || c.turns_after ? no_slot : memory(a).gradients.of(a.microbatch);
  }
  void begin_receive(const Action& a) {
    const int32_t y = incoming(a);
    if (y == no_slot) return;
    await(y);
    begin(Op::receive, a, y);
  }
  void begin(Op op, const Action& a, int32_t y) {
    const bool returns = plan_.mesh.v_shaped && a.chunk == 1;
    const Channel channel = a.kind == Action::Kind::forward ? (returns ? Channel::forward_return : Channel::forward)
                            : returns                       ? Channel::backward_return
                                                            : Channel::backward;
    emit(a, {.op = op, .channel = channel, .y = y});
    on_its_way_.insert(y);
  }
  void await(int32_t y) {
    if (on_its_way_.erase(y)) list_.push_back({.op = Op::await_transfer, .y = y});
  }

  void forward(const Action& a) {
    const Chunk& c = chunk(a);
    const ChunkMemory& m = memory(a);
    const int64_t k = a.microbatch;
    if (c.first || c.last || plan_.layers_need_batch()) emit(a, {.op = Op::load, .batch = m.batches.of(k)});
    if (c.first) {
      for (const size_t unit : plan_.embedding) use(unit);
      emit(a, {.op = Op::embed, .y = m.inputs.of(k), .batch = m.batches.of(k)});
    }
    await(m.outputs.of(k));
    const bool keeps = mode_ == Mode::train && plan_.kept != Kept::input;
    for (int64_t i = 0; i < c.num_layers; i++) {
      use(c.unit(i));
      Instruction layer = of_layer(Op::forward, a, i);
      layer.x = m.x(k, i);
      layer.y = m.x(k, i + 1);
      if (keeps && !in_halves()) layer.saved = m.saved_of(k, i);
      if (keeps && in_halves()) {
        layer.saved = kept(a, i).saved = saved_numbers_.take();
        if (plan_.kept == Kept::all) layer.inputs = kept(a, i).inputs = input_numbers_.take();
      }
      emit(a, layer);
    }
    if (c.last) return head(a);
    if (!c.turns_after) begin(Op::send, a, m.outputs.of(k));
  }

  void head(const Action& a) {
    const ChunkMemory& m = memory(a);
    const int32_t batch = m.batches.of(a.microbatch), x = m.outputs.of(a.microbatch);
    for (const size_t unit : plan_.head) use(unit);
    if (mode_ == Mode::logits) return emit(a, {.op = Op::head_logits, .x = x});
    if (mode_ == Mode::train) {
      const int32_t gradient = m.gradients.of(a.microbatch);
      await(gradient);
      bool add = false;
      for (const size_t unit : plan_.head_gradients) {
        if (!plan_.trains(unit)) continue;
        const bool products = plan_.unit(unit).multiplies, filled = gradients_->open(unit, products);
        if (products) add = filled;
      }
      emit(a, {.op = Op::head, .add = add, .x = x, .y = gradient, .batch = batch});
      for (const size_t unit : plan_.head_gradients)
        if (plan_.trains(unit) && (unit != plan_.tied || !plan_.chunks.front().first))
          gradients_->reduce(unit, last_microbatch(a));
    } else {
      emit(a, {.op = Op::head_loss, .x = x, .batch = batch});
    }
    emit(a, {.op = Op::count_loss, .batch = batch});
  }

  void backward(const Action& a) {
    const Chunk& c = chunk(a);
    const ChunkMemory& m = memory(a);
    const int64_t k = a.microbatch;
    const int32_t gradient = m.gradients.of(k);
    for (int64_t g = m.groups(); g-- > 0;) {
      const int64_t first = g * m.group, end = std::min(first + m.group, c.num_layers);
      for (int64_t i = first; plan_.kept != Kept::all && i < end; i++) {
        use(c.unit(i));
        Instruction layer = of_layer(Op::recompute, a, i);
        layer.x = m.x(k, i);
        if (i + 1 < end) layer.y = m.x(k, i + 1);
        if (i + 1 == end && plan_.recompute_outputs && plan_.kept == Kept::input)
          layer.y = m.inside + as_number(m.group - 1);
        if (plan_.kept == Kept::products) layer.saved = in_halves() ? kept(a, i).saved : m.saved_of(k, i);
        if (in_halves() && plan_.trains(c.unit(i))) layer.inputs = kept(a, i).inputs = input_numbers_.take();
        emit(a, layer);
      }
      for (int64_t i = end; i-- > first;) {
        use(c.unit(i));
        if (in_halves())
          backward_input(a, i);
        else
          whole_backward(a, i);
      }
    }
    if (c.first) {
      std::vector<size_t> trained;
      std::ranges::copy_if(plan_.embedding, std::back_inserter(trained), [&](size_t u) { return plan_.trains(u); });
      for (const size_t unit : trained) gradients_->open(unit, false);
      if (!trained.empty()) emit(a, {.op = Op::embed_backward, .y = gradient, .batch = m.batches.of(k)});
      for (const size_t unit : trained) gradients_->reduce(unit, last_microbatch(a));
    } else if (!c.turns_before) {
      begin(Op::send, a, gradient);
    }
    // After all instructions that are the same in every microbatch.
    if (c.last) emit(a, {.op = Op::keep_loss, .batch = m.batches.of(k)});
  }

  void whole_backward(const Action& a, int64_t i) {
    const size_t unit = chunk(a).unit(i);
    Instruction layer = of_layer(Op::backward, a, i);
    if (plan_.trains(unit)) layer.add = open(unit);
    layer.x = memory(a).x(a.microbatch, i);
    layer.y = memory(a).gradients.of(a.microbatch);
    if (plan_.kept == Kept::all) layer.saved = memory(a).saved_of(a.microbatch, i);
    emit(a, layer);
    if (plan_.trains(unit)) gradients_->reduce(unit, last_microbatch(a));
  }
  // Returns whether products add.
  bool open(size_t unit) {
    const bool products = plan_.units[unit].multiplies, filled = gradients_->open(unit, products);
    return products && filled;
  }

  // Leaves the gradients that products write to backward_weight().
  void backward_input(const Action& a, int64_t i) {
    const size_t unit = chunk(a).unit(i);
    const bool trains = plan_.trains(unit);
    Instruction layer = of_layer(Op::backward_input, a, i);
    LayerKept& k = kept(a, i);
    layer.apart = trains && gradients_->scatters_each_microbatch(unit);
    if (trains && !layer.apart) gradients_->prepare(unit, plan_.units[unit].multiplies);
    layer.x = memory(a).x(a.microbatch, i);
    layer.y = memory(a).gradients.of(a.microbatch);
    if (plan_.kept == Kept::all) {
      layer.saved = k.saved;
      layer.inputs = k.inputs;
    }
    if (trains) layer.held = k.held = saved_numbers_.take();
    emit(a, layer);
    if (k.saved != no_slot) saved_numbers_.give_back(k.saved);
    if (trains) return;
    if (k.inputs != no_slot) input_numbers_.give_back(k.inputs);
    kept_.erase({layer.layer, a.microbatch});
  }

  void backward_weight(const Action& a) {
    const Chunk& c = chunk(a);
    for (int64_t i = c.num_layers; i-- > 0;) {
      const size_t unit = c.unit(i);
      if (!plan_.trains(unit)) continue;
      if (plan_.model.adapter.in_use()) use(unit);  // its gradients are products with its other matrix
      Instruction layer = of_layer(Op::backward_weight, a, i);
      const LayerKept& k = kept(a, i);
      layer.apart = gradients_->scatters_each_microbatch(unit);
      layer.add = open(unit);
      layer.inputs = k.inputs;
      layer.held = k.held;
      emit(a, layer);
      saved_numbers_.give_back(k.held);
      input_numbers_.give_back(k.inputs);
      kept_.erase({layer.layer, a.microbatch});
      gradients_->reduce(unit, last_microbatch(a));
    }
  }

  bool in_halves() const { return mode_ == Mode::train && plan_.pipeline.in_halves(); }
  LayerKept& kept(const Action& a, int64_t i) { return kept_[{chunk(a).first_layer + i, a.microbatch}]; }

  Instruction of_layer(Op op, const Action& a, int64_t i) const {
    const Chunk& c = chunk(a);
    return {.op = op,
            .layer = as_number(c.first_layer + i),
            .unit = as_number(c.unit(i)),
            .batch = plan_.layers_need_batch() ? memory(a).batches.of(a.microbatch) : no_slot};
  }

  const Plan& plan_;
  const Mode mode_;
  const int64_t microbatches_;
  const std::vector<ChunkMemory> memory_;
  Program list_;
  Gradients* gradients_ = nullptr;
  std::set<int32_t> on_its_way_;                           // residuals
  std::map<std::pair<int64_t, int64_t>, LayerKept> kept_;  // by layer of the model, microbatch
  FreeNumbers saved_numbers_, input_numbers_;
};

Program program(const Plan& plan, Lister::Mode mode, const std::vector<Action>& actions, int64_t microbatches) {
  Lister lister(plan, mode, microbatches);
  Program list = lister.run(actions);
  if (plan.horizon > 0) list = with_offload(list, lister.kept(), plan.horizon);
  return with_gathers(plan, list, mode != Lister::Mode::logits);
}

}  // namespace

Program training_program(const Plan& plan) {
  Program list = program(plan, Lister::Mode::train, plan.schedule, plan.pipeline.microbatches);
  list_update(plan, list);
  return list;
}

Program evaluation_program(const Plan& plan, int64_t microbatches) {
  PipelineShape pipeline = plan.pipeline;
  pipeline.microbatches = microbatches;
  return program(plan, Lister::Mode::evaluate,
                 forward_schedule(pipeline, plan.mesh.coordinate(plan.rank, Axis::pipeline)), microbatches);
}

Program logits_program(const Plan& plan) {
  PipelineShape pipeline = plan.pipeline;
  pipeline.microbatches = 1;
  return program(plan, Lister::Mode::logits,
                 forward_schedule(pipeline, plan.mesh.coordinate(plan.rank, Axis::pipeline)), 1);
}

}  // namespace megalith
