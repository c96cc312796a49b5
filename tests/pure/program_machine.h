// A machine without tensors that runs the programs of all ranks of a layout against each other: what a residual, a slot
// or a message holds is a word ("h.3 of 2"), and every instruction has to keep its row of program_laws.h.
#pragma once

#include <deque>
#include <utility>

#include "tests/pure/unit_machine.h"

namespace megalith::test {

using Programs = std::vector<Program>;  // by rank

// Says in words what has gone wrong; none: nothing.
using Fault = std::optional<std::string>;

class Machine {
 public:
  enum class Mode { train, evaluate, logits };

  Machine(const std::vector<Plan>& plans, const Programs& programs, Mode mode, int64_t microbatches)
      : plans_(plans), programs_(programs), mode_(mode), microbatches_(microbatches), ranks_(plans.size()) {}

  // Runs every list as far as messages allow, until all have ended.
  Fault run() {
    try {
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < ranks_.size(); r++)
          while (ranks_[r].at < programs_[r].size() && step(r)) moved = true;
      }
      for (size_t r = 0; r < ranks_.size(); r++) check_end(r);
      for (size_t r = 1; r < ranks_.size(); r++)
        for (Channel channel : {Channel::shard, Channel::data, Channel::tensor})
          if (together(0, r, channel)) expect(ranks_[r].calls[channel] == ranks_[0].calls[channel], "unlike calls");
    } catch (const std::string& fault) {
      return fault;
    }
    return std::nullopt;
  }

 private:
  struct Recomputed {
    std::string word;
    int32_t saved = Instruction::none;
  };
  struct Batch {
    int64_t microbatch = 0;
    bool has_losses = false;
  };
  struct Rank {
    size_t at = 0;
    std::map<Memory, std::map<int32_t, Place>> memory;
    std::map<int32_t, std::string> saved, inputs, host;  // words
    std::deque<Recomputed> recomputed;                   // the first is used next
    std::map<int32_t, Batch> batches;
    std::set<int64_t> kept, counted;                                     // microbatches whose losses are
    std::map<Channel, std::vector<std::pair<Op, int32_t>>> calls;        // with their units, in order
    std::map<std::pair<size_t, Channel>, std::deque<std::string>> mail;  // what has been sent to it
    UnitMachine units;
    bool cast = false;  // the weights of products in 8 bits
  };
  // One instruction of one rank.
  struct Turn {
    size_t r;
    Rank& rank;
    const Plan& plan;
    const Instruction& i;

    std::string word(Value value) const {
      const bool gradient = value >= Value::d_embedding;
      const int64_t layer = value == Value::embedding || value == Value::d_embedding ? -1
                            : value == Value::input || value == Value::d_input       ? i.layer - 1
                            : value == Value::last || value == Value::d_last         ? plan.model.layers - 1
                                                                                     : i.layer;
      if (value == Value::used_up) return "used up";
      return fmt::format("{}h.{} of {}", gradient ? "d " : "", layer, i.microbatch);
    }
    std::vector<size_t> units(Units which) const {
      if (which == Units::embedding) return plan.embedding;
      if (which == Units::head) return plan.head;
      if (which == Units::head_gradients) return plan.head_gradients;
      if (which == Units::own) return {static_cast<size_t>(i.unit)};
      return {};
    }
    Place& residual(int32_t number) const { return rank.memory[Memory::residuals][number]; }
    Place* place(const Move& move) const {
      const int32_t number = move.memory == Memory::residuals ? i.y : i.slot;
      const bool none = move.memory == Memory::none || (move.optional && number == Instruction::none);
      return none ? nullptr : &rank.memory[move.memory][number];
    }
  };

  bool together(size_t a, size_t b, Channel channel) const {
    const MeshShape& mesh = plans_[a].mesh;
    return mesh.position(static_cast<int>(a), channel).group == mesh.position(static_cast<int>(b), channel).group;
  }
  size_t neighbour(size_t r, int steps) const {
    const MeshShape& mesh = plans_[r].mesh;
    const int p = mesh.pipeline, wanted = (mesh.coordinate(static_cast<int>(r), Axis::pipeline) + steps + p) % p;
    for (int other = 0; other < mesh.size(); other++) {
      bool same = mesh.coordinate(other, Axis::pipeline) == wanted;
      for (Axis axis : {Axis::tensor, Axis::shard, Axis::data})
        same = same && mesh.coordinate(other, axis) == mesh.coordinate(static_cast<int>(r), axis);
      if (same) return static_cast<size_t>(other);
    }
    throw std::string("no neighbour");
  }

  // Does what its row says, in order. Returns false if it waits for a message.
  bool step(size_t r) {
    const Turn t{r, ranks_[r], plans_[r], programs_[r][ranks_[r].at]};
    const Law& law = law_of(t.i.op);
    Place* place = t.place(law.move);
    if (t.i.op == Op::await_transfer && place && place->message && mail(t, *place->message).empty()) return false;
    if (law.tokens == Tokens::always || (law.tokens != Tokens::none && t.plan.layers_need_batch())) expect_batch(t);
    for (const size_t u : t.units(law.weights)) use_weights(t, u);
    if (t.i.op == Op::backward_weight && t.plan.model.adapter.in_use()) use_weights(t, static_cast<size_t>(t.i.unit));
    if (law.x != Value::none) read(t, t.i.x, law.x);
    if (law.y != Value::none) read(t, t.i.y, law.y);
    do_more(t, place);
    if (place) move(law.move, t.i, *place);
    bool adds = false;
    for (const size_t u : t.units(law.gradients)) {
      if (!t.plan.trains(u)) continue;
      const bool products = t.plan.unit(u).multiplies && t.i.op != Op::embed_backward;
      adds = adds || products;
      t.rank.units.add(t.plan, u, t.i.microbatch, products ? std::optional(t.i.add) : std::nullopt,
                       t.rank.memory[Memory::gradients]);
    }
    expect(adds || !t.i.add || law.move.memory != Memory::none, "products add to what has no gradient");
    if (law.new_y != Value::none && t.i.y != Instruction::none) write(t, law.new_y);
    if (law.call) t.rank.calls[*law.call].emplace_back(t.i.op, t.i.unit != Instruction::none ? t.i.unit : t.i.round);
    t.rank.at++;
    return true;
  }

  void expect_batch(const Turn& t) {
    const auto batch = t.rank.batches.find(t.i.batch);
    expect(batch != t.rank.batches.end() && batch->second.microbatch == t.i.microbatch, "tokens of another microbatch");
  }
  bool in_8_bits(const Turn& t, size_t unit) const { return mode_ != Mode::logits && t.plan.units[unit].fp8 > 0; }
  void use_weights(const Turn& t, size_t unit) {
    expect(t.rank.cast || !in_8_bits(t, unit), "weights are not cast");
    if (!t.plan.gathers()) return;
    if (const auto frozen = t.plan.units[unit].frozen_part) use_weights(t, *frozen);
    for (const auto& [at, slot] : t.rank.memory[Memory::weights])
      if (slot.unit == static_cast<int32_t>(unit))
        return expect(slot.state == state::there, "weights are still on their way");
    throw t.plan.units[unit].name + " is not gathered";
  }
  void read(const Turn& t, int32_t x, Value value) {
    const Place& residual = t.residual(x);
    expect((residual.state & (state::there | state::copying)) && residual.word == t.word(value),
           fmt::format("residual {} has {}, wanted {}", x, residual.word, t.word(value)));
  }
  void write(const Turn& t, Value value) {
    Place& y = t.residual(t.i.y);
    expect(y.state & state::still, fmt::format("residual {} is written while {} is on its way", t.i.y, y.word));
    y.word = t.word(value);
    y.state = state::there;
  }
  void move(const Move& m, const Instruction& i, Place& place) {
    expect(place.state & m.from, m.fault);
    if (m.memory != Memory::residuals && i.unit != Instruction::none) {
      const bool continues = !(m.from & state::empty);
      expect(!continues || (place.unit == i.unit && place.part == i.part), m.fault);
      place.unit = i.unit;
      place.part = i.part;
    }
    if (i.round != Instruction::none) {
      expect((m.from & state::empty) || place.unit == i.round, "the slot of another round");
      place.unit = i.round;
    }
    const bool gone = place.state == state::going && m.to == state::there;
    place.state = gone ? state::empty : i.op == Op::zero && !i.all ? state::unwritten : m.to;
  }

  // Checks what the rows do not say, before a place moves.
  void do_more(const Turn& t, Place* place) {
    switch (t.i.op) {
      case Op::cast: t.rank.cast = true; return;
      case Op::gather:
        expect(t.rank.cast || !t.i.fp8, "gathered before it is cast");
        expect(t.i.fp8 == in_8_bits(t, static_cast<size_t>(t.i.unit)), "gathered in another type than it is used in");
        return expect_memory(t);
      case Op::receive:
      case Op::send:
      case Op::offload:
      case Op::fetch:
      case Op::await_transfer: return transfer(t, *place);
      case Op::load: t.rank.batches[t.i.batch] = {t.i.microbatch}; return;
      case Op::forward:
        if (t.i.saved != Instruction::none)
          expect(t.rank.saved.emplace(t.i.saved, t.word(Value::output)).second, "saved over what is needed");
        return keep_inputs(t);
      case Op::recompute: keep_inputs(t); [[fallthrough]];
      case Op::backward: return recompute(t);
      case Op::backward_input: return first_half(t);
      case Op::backward_weight: return second_half(t);
      case Op::head:
      case Op::head_loss: t.rank.batches[t.i.batch].has_losses = true; return;
      case Op::keep_loss:
        expect(mode_ == Mode::train && t.rank.batches[t.i.batch].has_losses, "no losses to keep");
        return expect(t.rank.kept.insert(t.i.microbatch).second, "kept before");
      case Op::count_loss:
        expect(t.rank.batches[t.i.batch].has_losses, "no losses");
        return expect(t.rank.counted.insert(t.i.microbatch).second, "counted before");
      case Op::norm:
        expect(t.rank.units.is_finished(t.plan, static_cast<size_t>(t.i.unit), microbatches_),
               "the norm of a gradient that is not finished");
        [[fallthrough]];
      default: t.rank.units.step(t.plan, t.i, place, t.rank.memory[Memory::gradients]);
    }
  }

  void expect_memory(const Turn& t) {
    const auto shares = [&](int32_t unit) { return !t.plan.units[static_cast<size_t>(unit)].keep_gathered; };
    int64_t layers = shares(t.i.unit);
    for (const auto& [at, slot] : t.rank.memory[Memory::weights])
      layers += at != t.i.slot && slot.state != state::empty && shares(slot.unit);
    expect(layers <= t.plan.live_units, "more layers are gathered than have memory");
  }

  std::deque<std::string>& mail(const Turn& t, Channel channel) {
    return t.rank.mail[{neighbour(t.r, -direction_of(channel)), channel}];
  }
  void transfer(const Turn& t, Place& y) {
    switch (t.i.op) {
      case Op::receive: y.message = t.i.channel; return;
      case Op::send:
        ranks_[neighbour(t.r, direction_of(t.i.channel))].mail[{t.r, t.i.channel}].push_back(y.word);
        return;
      case Op::await_transfer:
        y.host = Instruction::none;
        if (!y.message) return;
        y.word = mail(t, *y.message).front();
        mail(t, *y.message).pop_front();
        y.message.reset();
        return;
      default:
        for (const auto& [at, other] : t.rank.memory[Memory::residuals])
          expect(other.host != t.i.host, fmt::format("{} on the host is still on its way", t.i.host));
        y.host = t.i.host;
        t.i.op == Op::offload ? t.rank.host[t.i.host] = y.word : y.word = t.rank.host[t.i.host];
    }
  }

  // Into scratch memory, and out of it.
  void recompute(const Turn& t) {
    const std::string word = t.word(Value::output);
    const int32_t saved = t.i.saved;
    if (saved != Instruction::none) expect(t.rank.saved[saved] == word, "another layer was saved");
    if (t.i.op == Op::recompute) {
      t.rank.recomputed.push_front({word, saved});
      return expect(static_cast<int64_t>(t.rank.recomputed.size()) <= t.plan.group,
                    "more layers are recomputed than a group has");
    }
    if (saved != Instruction::none) {
      t.rank.saved.erase(saved);
      return;
    }
    expect(!t.rank.recomputed.empty() && t.rank.recomputed.front().word == word, "another was recomputed");
    t.rank.saved.erase(t.rank.recomputed.front().saved);
    t.rank.recomputed.pop_front();
  }

  void keep_inputs(const Turn& t) {
    if (t.i.inputs != Instruction::none)
      expect(t.rank.inputs.emplace(t.i.inputs, t.word(Value::output)).second, "inputs over what is needed");
  }
  // A layer that is kept whole or computed again leaves its inputs to the second half, if it has one.
  void first_half(const Turn& t) {
    const std::string word = t.word(Value::output);
    const bool trains = t.plan.trains(static_cast<size_t>(t.i.unit));
    expect((t.i.held != Instruction::none) == trains, "held for nothing, or nothing is held");
    if (trains) expect(t.rank.saved.emplace(t.i.held, word + ", backward").second, "held over what is needed");
    if (t.i.inputs != Instruction::none) expect(t.rank.inputs[t.i.inputs] == word, "the inputs of another layer");
    expect((t.i.inputs != Instruction::none) == (t.i.saved != Instruction::none), "a part is computed again");
    recompute(t);
    if (!trains && t.i.inputs != Instruction::none) t.rank.inputs.erase(t.i.inputs);
    t.rank.units.add_first_half(t.plan, t.i, t.rank.memory[Memory::gradients]);
  }
  void second_half(const Turn& t) {
    const std::string word = t.word(Value::output);
    expect(t.rank.saved[t.i.held] == word + ", backward", "another layer is held");
    expect(t.rank.inputs[t.i.inputs] == word, "the inputs of another layer");
    t.rank.saved.erase(t.i.held);
    t.rank.inputs.erase(t.i.inputs);
    t.rank.units.check_second_half(t.plan, t.i);
  }

  void check_end(size_t r) {
    Rank& rank = ranks_[r];
    const Plan& plan = plans_[r];
    expect(rank.at == programs_[r].size(), fmt::format("rank {} waits for ever", r));
    for (const auto& [from, mail] : rank.mail) expect(mail.empty(), "mail is left");
    for (const Memory memory : {Memory::residuals, Memory::weights})
      for (const auto& [at, place] : rank.memory[memory])
        expect(!(place.state & state::on_its_way), "residuals or weights are still on their way");
    expect(rank.saved.empty() && rank.inputs.empty() && rank.recomputed.empty() && !rank.units.is_summing(),
           "something was saved for nothing");
    const bool last = plan.chunks.back().last;
    if (last && mode_ != Mode::logits)
      expect(static_cast<int64_t>(rank.counted.size()) == microbatches_, "losses are missing");
    if (last && mode_ == Mode::train) expect(rank.kept == rank.counted, "losses were not kept");
    if (mode_ == Mode::logits)
      expect(std::ranges::count(programs_[r], Op::head_logits, &Instruction::op) == (last ? 1 : 0),
             "logits come once, on the last stage");
    if (mode_ != Mode::train) return;
    rank.units.check_end(plan, microbatches_);
    for (const Memory memory : {Memory::gradients, Memory::staging, Memory::rounds})
      for (const auto& [at, place] : rank.memory[memory])
        expect(place.state == state::empty, "a gradient is left, or state is not back on the host");
  }

  const std::vector<Plan>& plans_;
  const Programs& programs_;
  const Mode mode_;
  const int64_t microbatches_;
  std::vector<Rank> ranks_;
};

}  // namespace megalith::test
