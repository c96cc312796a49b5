#include "trainer/program/offload.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace megalith {

namespace {

constexpr int32_t nothing = Instruction::none;

// The life of one value of a kept residual, from its write to its last read.
struct Value {
  std::vector<size_t> steps;  // that use it, ascending
  size_t last_read = 0;       // position in the list
};

// A step is one pass over a group, forward or backward, and has one value: the group's input.
struct Uses {
  std::vector<Value> values;
  std::vector<size_t> value_of;                          // by step
  std::map<size_t, size_t> begins;                       // maps the position of a step's first instruction to the step
  std::map<size_t, std::pair<int32_t, int32_t>> places;  // maps a position to the values in x and y, or to nothing
};

Uses uses_of(const Program& list, const std::vector<bool>& kept) {
  Uses uses;
  std::map<int32_t, int32_t> in;  // maps a residual to its value
  const auto is_kept = [&](int32_t residual) { return residual != nothing && kept[static_cast<size_t>(residual)]; };
  for (size_t at = 0; at < list.size(); at++) {
    const Instruction& i = list[at];
    std::pair<int32_t, int32_t> place{nothing, nothing};
    if (is_kept(i.x)) {
      place.first = in.at(i.x);
      Value& value = uses.values[static_cast<size_t>(place.first)];
      value.last_read = at;
      if (i.op != Instruction::Op::backward &&
          i.op != Instruction::Op::backward_input) {  // which belongs to the step of the recomputation
        value.steps.push_back(uses.value_of.size());
        uses.begins[at] = uses.value_of.size();
        uses.value_of.push_back(static_cast<size_t>(place.first));
      }
    }
    if (is_kept(i.y)) {
      if (i.op != Instruction::Op::await_transfer) {
        in[i.y] = static_cast<int32_t>(uses.values.size());
        uses.values.emplace_back();
      }
      place.second = in.at(i.y);
    }
    if (place.first != nothing || place.second != nothing) uses.places[at] = place;
  }
  return uses;
}

class Offloading {
 public:
  Offloading(const Program& list, const std::vector<bool>& kept, int64_t horizon)
      : list_(list), uses_(uses_of(list, kept)), horizon_(static_cast<size_t>(horizon)), states_(uses_.values.size()) {
    const bool receives = std::any_of(list.begin(), list.end(), [&](const Instruction& i) {
      return i.op == Instruction::Op::receive && kept[static_cast<size_t>(i.y)];
    });
    slots_.assign(horizon_ + (receives ? 2 : 1), nothing);
  }

  Program run() {
    for (size_t at = 0; at < list_.size(); at++) {
      Instruction i = list_[at];
      const auto place = uses_.places.find(at);
      if (place == uses_.places.end()) {
        out_.push_back(i);
        continue;
      }
      const auto [x, y] = place->second;
      if (const auto begins = uses_.begins.find(at); begins != uses_.begins.end()) begin(begins->second);
      if (x != nothing) i.x = slot_number(state(x).slot);
      if (y != nothing)
        write(i, y);
      else
        out_.push_back(i);
      if (x != nothing && uses_.values[static_cast<size_t>(x)].last_read == at) forget(x);
    }
    drop_useless_copies();
    number_anew();
    return std::move(out_);
  }

 private:
  struct State {
    size_t slot = nowhere;  // its slot on the device, or nowhere
    bool written = false, on_its_way = false, needed_on_host = false;
    size_t offload = 0, end = 0;  // positions in out_: of its copy to the host, and after its last use
  };
  static constexpr size_t nowhere = static_cast<size_t>(-1);

  State& state(int32_t value) { return states_[static_cast<size_t>(value)]; }
  // Slots have numbers below those of all residuals until all are renumbered.
  static int32_t slot_number(size_t slot) { return -2 - static_cast<int32_t>(slot); }

  void begin(size_t step) {
    step_ = step;
    const size_t value = uses_.value_of[step];
    const auto v = static_cast<int32_t>(value);
    fetch(v, true);
    if (std::exchange(state(v).on_its_way, false))
      out_.push_back({.op = Instruction::Op::await_transfer, .y = slot_number(state(v).slot)});
    for (size_t ahead = step + 1; ahead < uses_.value_of.size() && ahead <= step + horizon_; ahead++)
      fetch(static_cast<int32_t>(uses_.value_of[ahead]), false);
  }

  void fetch(int32_t v, bool must) {
    if (!state(v).written || state(v).slot != nowhere) return;
    const size_t slot = take(must);
    if (slot == nowhere) return;
    put(v, slot);
    state(v).on_its_way = true;
    out_.push_back({.op = Instruction::Op::fetch, .y = slot_number(slot), .host = v});
  }

  // y of the instruction: embedding and forward write it; a message has arrived when it is awaited.
  void write(Instruction i, int32_t v) {
    if (state(v).slot == nowhere) put(v, take(true));
    i.y = slot_number(state(v).slot);
    out_.push_back(i);
    if (i.op == Instruction::Op::receive) return;
    state(v).written = true;
    state(v).offload = out_.size();
    out_.push_back({.op = Instruction::Op::offload, .y = i.y, .host = v});
  }

  void put(int32_t v, size_t slot) {
    slots_[slot] = v;
    state(v).slot = slot;
  }

  void forget(int32_t v) {
    slots_[state(v).slot] = nothing;
    state(v).slot = nowhere;
    state(v).end = out_.size();
  }

  // Returns the next step that uses a value.
  size_t next_use(int32_t v) const {
    const std::vector<size_t>& steps = uses_.values[static_cast<size_t>(v)].steps;
    const auto next = std::lower_bound(steps.begin(), steps.end(), step_);
    return next == steps.end() ? nowhere : *next;
  }

  // Returns a free slot, or the slot whose value is used last and not before the horizon, or nowhere.
  size_t take(bool must) {
    size_t best = nowhere, latest = 0;
    for (size_t slot = 0; slot < slots_.size(); slot++) {
      const int32_t v = slots_[slot];
      if (v == nothing) return slot;
      const bool fresh = next_use(v) == uses_.values[static_cast<size_t>(v)].steps.front();
      if (state(v).on_its_way || fresh || next_use(v) <= step_ + horizon_ || next_use(v) <= latest) continue;
      best = slot;
      latest = next_use(v);
    }
    if (best == nowhere) {
      CHECK(!must, "the inputs of the groups need more than {} residuals", slots_.size());
      return nowhere;
    }
    State& evicted = state(slots_[best]);
    if (!std::exchange(evicted.needed_on_host, true))
      out_.push_back({.op = Instruction::Op::await_transfer, .y = slot_number(best)});
    evicted.slot = nowhere;
    return best;
  }

  void drop_useless_copies() {
    Program all = std::move(out_);
    out_.clear();
    std::vector<size_t> position(all.size() + 1);
    for (size_t at = 0; at < all.size(); at++) {
      position[at] = out_.size();
      if (all[at].op != Instruction::Op::offload || state(all[at].host).needed_on_host) out_.push_back(all[at]);
    }
    position.back() = out_.size();
    for (State& s : states_) s.end = position[s.end];
  }

  // Numbers residuals by first use; on the host, by the lowest free number.
  void number_anew() {
    std::map<int32_t, int32_t> residuals;
    const auto number = [&](int32_t& residual) {
      if (residual != nothing)
        residual = residuals.emplace(residual, static_cast<int32_t>(residuals.size())).first->second;
    };
    std::map<size_t, std::vector<int32_t>> ends;  // maps a position to values
    for (size_t v = 0; v < states_.size(); v++) ends[states_[v].end].push_back(static_cast<int32_t>(v));
    std::map<int32_t, int32_t> on_host;  // maps a value to its number there
    std::set<int32_t> free;
    int32_t most = 0;
    for (size_t at = 0; at < out_.size(); at++) {
      if (const auto end = ends.find(at); end != ends.end())
        for (int32_t v : end->second)
          if (const auto number_of = on_host.find(v); number_of != on_host.end()) free.insert(number_of->second);
      Instruction& i = out_[at];
      number(i.x);
      number(i.y);
      if (i.op == Instruction::Op::offload) {
        on_host[i.host] = free.empty() ? most++ : *free.begin();
        free.erase(on_host[i.host]);
      }
      if (i.host != nothing) i.host = on_host.at(i.host);
    }
  }

  const Program& list_;
  const Uses uses_;
  const size_t horizon_;
  std::vector<State> states_;   // by value
  std::vector<int32_t> slots_;  // the value in each, or none
  size_t step_ = 0;             // the last step that has begun
  Program out_;                 // `host` is the value until all are renumbered
};

}  // namespace

Program with_offload(const Program& list, const std::vector<bool>& kept, int64_t horizon) {
  return Offloading(list, kept, horizon).run();
}

}  // namespace megalith
