#include "trainer/parallel/graphs.h"

#include <algorithm>

namespace megalith {

namespace {

using Op = Instruction::Op;

bool only_launches(const Instruction& i) {
  switch (i.op) {
    case Op::zero: return i.slot == Instruction::none;
    case Op::embed:
    case Op::forward:
    case Op::recompute:
    case Op::head:
    case Op::head_loss:
    case Op::count_loss:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::embed_backward: return true;
    default: return false;
  }
}

bool uses_recomputed(const Instruction& i) {
  return (i.op == Op::backward || i.op == Op::backward_input) && i.saved == Instruction::none;
}

// Returns whether its launches have the number of rows that are not masked.
bool has_rows_of_its_own(const Plan& plan, const Instruction& i) {
  return i.layer != Instruction::none && plan.has_fp8(i.layer) &&
         plan.batch.sequences(i.microbatch).size() < plan.batch.microbatch;
}

// Returns the end of the longest part from `begin` on that ends with no recomputed tensors in use.
size_t end_of_part(const Program& program, size_t begin) {
  size_t end = begin;
  int64_t recomputed = 0;
  for (size_t at = begin; at < program.size() && only_launches(program[at]); at++) {
    if (program[at].op == Op::recompute) recomputed++;
    if (uses_recomputed(program[at]) && --recomputed < 0) break;
    if (recomputed == 0) end = at + 1;
  }
  return end;
}

}  // namespace

ProgramParts parts_of(const Plan& plan, const Program& program) {
  ProgramParts found;
  std::vector<Program> graphs;
  const auto graph_of = [&](size_t begin, size_t end) {
    Program part(program.begin() + static_cast<std::ptrdiff_t>(begin),
                 program.begin() + static_cast<std::ptrdiff_t>(end));
    for (Instruction& i : part)
      if (!has_rows_of_its_own(plan, i)) i.microbatch = Instruction::none;
    const auto same = std::ranges::find(graphs, part);
    const auto number = as_number(same - graphs.begin());
    if (same == graphs.end()) graphs.push_back(std::move(part));
    return number;
  };
  for (size_t at = 0; at < program.size();) {
    const size_t end = end_of_part(program, at);
    if (end > at) {
      found.parts.push_back({at, end, graph_of(at, end)});
    } else if (!found.parts.empty() && found.parts.back().graph == Instruction::none) {
      found.parts.back().end++;
    } else {
      found.parts.push_back({at, at + 1, Instruction::none});
    }
    at = std::max(end, at + 1);
  }
  found.graphs = graphs.size();
  return found;
}

bool has_graphs(const Plan& plan) { return plan.cuda_graphs && plan.tensor.degree == 1 && plan.pipeline.stages == 1; }

}  // namespace megalith
