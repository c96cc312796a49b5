// The laws of a program's instructions, a row for each: what it needs of memory, moves, reads, writes and adds to. The
// machine (program_machine.h) holds every instruction to its row.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "trainer/program/program.h"

namespace megalith::test {

using Op = Instruction::Op;

// A fault is thrown as words.
inline void expect(bool good, const std::string& fault) {
  if (!good) throw fault;
}

// Memory that is named by number: residuals by y, the others by slot.
enum class Memory { none, residuals, weights, gradients, staging, rounds };

// The states that such memory goes through; rows have sets of these.
namespace state {
using Set = unsigned;
constexpr Set empty = 1, unwritten = 2, there = 4,
              updated = 8;  // unwritten: what products write is neither zero nor sum
constexpr Set coming = 16, going = 32, relayed = 64, copying = 128;  // on the way; what is copying may still be read
constexpr Set still = empty | there, on_its_way = coming | going | copying;
}  // namespace state

struct Place {
  state::Set state = state::empty;
  int32_t unit = Instruction::none;
  Interval part{};                   // of the unit's optimizer state
  std::set<int64_t> microbatches{};  // that are in a gradient
  std::string word{};                // what a residual holds
  std::optional<Channel> message{};  // what comes is the next one of these
  int32_t host = Instruction::none;  // the other end of a copy
};

// From one of these states, of this unit and part, to that one.
struct Move {
  Memory memory = Memory::none;
  state::Set from = 0, to = 0;
  const char* fault = "";
  bool optional = false;  // an instruction without a slot moves nothing
};

enum class Units { none, own, embedding, head, head_gradients };
enum class Tokens { none, where_layers_need_them, always };

// Where a residual of the instruction's microbatch lies in the model: behind so many layers, or its gradient.
enum class Value { none, embedding, input, output, last, d_embedding, d_input, d_output, d_last, used_up };

struct Law {
  Move move{};
  std::optional<Channel> call{};  // of the ranks of that axis, together
  Tokens tokens = Tokens::none;
  Units weights = Units::none;
  Value x = Value::none, y = Value::none, new_y = Value::none;  // read, read, and written
  Units gradients = Units::none;                                // added to
};

// Those of memory: what is gathered, scattered and summed, and what travels.
inline std::map<Op, Law> memory_laws() {
  using namespace state;
  using enum Memory;
  constexpr Channel shard = Channel::shard, data = Channel::data, tensor = Channel::tensor;
  return {
      {Op::cast, {.call = shard}},
      {Op::gather, {.move = {weights, still, coming, "a slot is gathered into twice"}, .call = shard}},
      {Op::await_gather, {.move = {weights, coming, there, "nothing to await"}}},
      {Op::zero, {.move = {gradients, empty, there, "a gradient is zeroed that is needed", true}}},
      {Op::scatter, {.move = {gradients, there | unwritten, going, "what is scattered is not there"}, .call = shard}},
      {Op::relay, {.move = {gradients, going, relayed, "nothing to relay"}, .call = shard}},
      {Op::collect, {.move = {gradients, going | relayed, empty, "what is collected was not scattered"}}},
      {Op::sum_copies, {.call = data}},
      {Op::share_sums, {.call = data}},
      {Op::sum_tensor, {.call = tensor}},
      {Op::await_sums, {}},
      {Op::sum_tied, {}},
      {Op::receive, {.move = {residuals, still, coming, "received over what is on its way"}}},
      {Op::send, {.move = {residuals, still, going, "sent twice"}}},
      {Op::offload, {.move = {residuals, still, copying, "copied to the host while it is on its way"}}},
      {Op::fetch, {.move = {residuals, still, coming, "fetched over what is on its way"}}},
      {Op::await_transfer, {.move = {residuals, on_its_way, there, "no transfer to await"}}},
      {Op::fetch_state, {.move = {staging, empty | going, coming, "fetched over state that is needed"}}},
      {Op::await_state, {.move = {staging, coming | going, there, "no copy to await"}}},
      {Op::update, {.move = {staging, there, updated, "updated before the state is there", true}}},
      {Op::put_state, {.move = {staging, updated, going, "what is put back was not updated"}}},
      {Op::fetch_momentum, {.move = {staging, empty | going, coming, "fetched over state that is needed"}}},
      {Op::momentum, {.move = {staging, there, updated, "updated before the momentum is there", true}}},
      {Op::put_momentum, {.move = {staging, updated, going, "what is put back was not updated"}}},
      {Op::send_momentum, {.move = {rounds, empty, going, "sent over a round that is under way"}, .call = shard}},
      {Op::orthogonalize, {.move = {rounds, going, coming, "orthogonalised before it was sent"}, .call = shard}},
      {Op::await_directions, {.move = {rounds, coming, empty, "no directions to await"}}},
  };
}

// Those of math.
inline std::map<Op, Law> math_laws() {
  using enum Units;
  constexpr Tokens layers = Tokens::where_layers_need_them, always = Tokens::always;
  using V = Value;
  return {
      {Op::load, {}},
      {Op::embed, {.tokens = always, .weights = embedding, .new_y = V::embedding}},
      {Op::forward, {.tokens = layers, .weights = own, .x = V::input, .new_y = V::output}},
      {Op::recompute, {.tokens = layers, .weights = own, .x = V::input, .new_y = V::output}},
      {Op::head, {.tokens = always, .weights = head, .x = V::last, .new_y = V::d_last, .gradients = head_gradients}},
      {Op::head_loss, {.tokens = always, .weights = head, .x = V::last}},
      {Op::head_logits, {.weights = head, .x = V::last}},
      {Op::keep_loss, {.tokens = always}},
      {Op::count_loss, {.tokens = always}},
      {Op::backward,
       {.tokens = layers, .weights = own, .x = V::input, .y = V::d_output, .new_y = V::d_input, .gradients = own}},
      {Op::backward_input, {.tokens = layers, .weights = own, .x = V::input, .y = V::d_output, .new_y = V::d_input}},
      {Op::backward_weight, {.gradients = own}},
      {Op::embed_backward, {.tokens = always, .y = V::d_embedding, .new_y = V::used_up, .gradients = embedding}},
      {Op::norm, {}},
      {Op::sum_norms, {}},
      {Op::decide, {}},
  };
}

inline const Law& law_of(Op op) {
  static const std::map<Op, Law> laws = [] {
    std::map<Op, Law> all = memory_laws();
    all.merge(math_laws());
    return all;
  }();
  const auto found = laws.find(op);
  expect(found != laws.end(), fmt::format("an instruction without a law, of kind {}", static_cast<int>(op)));
  return found->second;
}

}  // namespace megalith::test
