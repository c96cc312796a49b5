#include "trainer/program/update.h"

#include <algorithm>
#include <vector>

#include "trainer/layout/matrices.h"

namespace megalith {

namespace {

using Op = Instruction::Op;

// A part of a unit, in elements of its shard.
struct UnitPart {
  size_t unit;
  Interval part;
};

// A pass over state processes each part; a part on the host is fetched before and put back afterwards.
struct Pass {
  Op fetch, work, put;
};
constexpr Pass update_pass{Op::fetch_state, Op::update, Op::put_state},
    momentum_pass{Op::fetch_momentum, Op::momentum, Op::put_momentum};

class UpdateLister {
 public:
  UpdateLister(const Plan& plan, Program& list) : plan_(plan), list_(list), rounds_(rounds_of(plan)) {
    int64_t layer = 0, largest = 0;
    for (const UnitPlan& unit : plan.units) {
      if (unit.frozen || !unit.optimizer_on_host) continue;
      largest = std::max(largest, unit.shard.size());
      if (unit.is_layer) layer = unit.shard.size();
    }
    largest_part_ = layer > 0 ? layer : largest;
  }

  void list() {
    list_updates();
    for (size_t buffer = 0; buffer < buffers_; buffer++)
      list_.push_back({.op = Op::await_state, .slot = as_number(buffer)});
  }

 private:
  void list_updates() {
    std::vector<size_t> others;
    for (size_t u = 0; u < plan_.units.size(); u++)
      if (plan_.trains(u) && plan_.units[u].matrices.size() == 0) others.push_back(u);
    if (rounds_.empty()) return pass(update_pass, others);
    begin(0);
    pass(update_pass, others);
    for (size_t r = 0; r < rounds_.size(); r++) {
      if (r + 1 < rounds_.size()) pass(momentum_pass, rounds_[r + 1].units);
      if (r > 0) of_round(Op::await_directions, r - 1);
      if (r + 1 < rounds_.size()) of_round(Op::send_momentum, r + 1);
      if (r > 0) pass(update_pass, rounds_[r - 1].units);
      of_round(Op::orthogonalize, r);
    }
    of_round(Op::await_directions, rounds_.size() - 1);
    pass(update_pass, rounds_.back().units);
  }
  void begin(size_t round) {
    pass(momentum_pass, rounds_[round].units);
    of_round(Op::send_momentum, round);
  }
  // Two rounds are in progress at a time.
  void of_round(Op op, size_t round) {
    list_.push_back({.op = op, .slot = as_number(round % 2), .round = as_number(round)});
  }

  // Returns the elements of the unit's shard that a pass covers.
  Interval of_pass(const Pass& pass, size_t u) const {
    const UnitPlan& unit = plan_.units[u];
    if (pass.work == Op::update) return {0, unit.shard.size()};
    const Interval here = intersect(unit.matrices, unit.shard);
    return here.size() > 0 ? Interval{here.begin - unit.shard.begin, here.end - unit.shard.begin} : Interval{};
  }
  // A unit larger than a layer, such as the embedding, has several parts.
  std::vector<UnitPart> parts_on_host(const Pass& pass, const std::vector<size_t>& units) const {
    std::vector<UnitPart> parts;
    for (const size_t u : units)
      if (const Interval all = of_pass(pass, u); plan_.units[u].optimizer_on_host)
        for (int64_t at = all.begin; at < all.end; at += largest_part_)
          parts.push_back({u, {at, std::min(at + largest_part_, all.end)}});
    return parts;
  }

  // Covers the units in their order, while the next part on the host is copied.
  void pass(const Pass& pass, const std::vector<size_t>& units) {
    const std::vector<UnitPart> parts = parts_on_host(pass, units);
    const size_t buffers = std::min<size_t>(2, parts.size());
    const auto of_part = [&](Op op, size_t p) {
      list_.push_back(
          {.op = op, .unit = as_number(parts[p].unit), .slot = as_number(p % buffers), .part = parts[p].part});
    };
    if (!parts.empty()) of_part(pass.fetch, 0);
    size_t next = 0;
    for (const size_t u : units) {
      if (const Interval all = of_pass(pass, u); !plan_.units[u].optimizer_on_host && all.size() > 0)
        list_.push_back({.op = pass.work, .unit = as_number(u), .part = all});
      for (; next < parts.size() && parts[next].unit == u; next++) {
        // Copies keep their order, so a fetch may follow a put from the same buffer.
        if (next + 1 < parts.size()) of_part(pass.fetch, next + 1);
        list_.push_back({.op = Op::await_state, .slot = as_number(next % buffers)});
        of_part(pass.work, next);
        of_part(pass.put, next);
      }
    }
    buffers_ = std::max(buffers_, buffers);
  }

  const Plan& plan_;
  Program& list_;
  const std::vector<Round> rounds_;
  int64_t largest_part_ = 0;
  size_t buffers_ = 0;  // buffers in use, including those being copied back
};

}  // namespace

bool is_of_update(Op op) { return op >= Op::norm; }

void list_update(const Plan& plan, Program& list) {
  for (size_t u = 0; u < plan.units.size(); u++)
    if (plan.trains(u)) list.push_back({.op = Op::norm, .unit = as_number(u)});
  list.push_back({.op = Op::sum_norms});
  list.push_back({.op = Op::decide});
  UpdateLister(plan, list).list();
}

}  // namespace megalith
