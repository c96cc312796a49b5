#include "trainer/program/action_number.h"

#include <fmt/format.h>

#include <algorithm>

namespace megalith {

namespace {

constexpr int64_t num_kinds = 4;  // kinds of actions

int64_t chunk_of(const Plan& plan, int64_t layer) {
  const auto chunk = std::ranges::find_if(
      plan.chunks, [=](const Chunk& c) { return c.first_layer <= layer && layer < c.first_layer + c.num_layers; });
  return chunk - plan.chunks.begin();
}

int64_t last_chunk(const Plan& plan) { return std::ranges::find_if(plan.chunks, &Chunk::last) - plan.chunks.begin(); }

}  // namespace

int32_t action_number(const Plan& plan, const Instruction& i) {
  using Kind = Action::Kind;
  using Op = Instruction::Op;
  const auto number = [&](Kind kind, int64_t chunk) {
    return as_number((i.microbatch * plan.pipeline.virtual_stages + chunk) * num_kinds + static_cast<int64_t>(kind));
  };
  const Kind backward = plan.pipeline.in_halves() ? Kind::backward_input : Kind::backward;
  switch (i.op) {
    case Op::embed: return number(Kind::forward, 0);
    case Op::forward: return number(Kind::forward, chunk_of(plan, i.layer));
    case Op::head: return number(Kind::forward, last_chunk(plan));
    case Op::recompute:
    case Op::backward:
    case Op::backward_input: return number(backward, chunk_of(plan, i.layer));
    case Op::backward_weight: return number(Kind::backward_weight, chunk_of(plan, i.layer));
    case Op::embed_backward: return number(backward, 0);
    default: return -1;
  }
}

Action action_of(int32_t number, int64_t virtual_stages) {
  const int64_t chunk = number / num_kinds;
  return {static_cast<Action::Kind>(number % num_kinds), chunk / virtual_stages, chunk % virtual_stages};
}

std::string name_of(const Action& action, int64_t virtual_stages) {
  const char letter = action.kind == Action::Kind::forward           ? 'F'
                      : action.kind == Action::Kind::backward_weight ? 'W'
                                                                     : 'B';
  return virtual_stages == 1 ? fmt::format("{}{}", letter, action.microbatch)
                             : fmt::format("{}{}.{}", letter, action.microbatch, action.chunk);
}

}  // namespace megalith
