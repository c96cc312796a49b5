// Which parts of a step a GPU gets as one launch each (kernels/stream/launch_graph.h). This follows from the list of
// instructions: such a part only launches ops, in memory that the instructions name, with numbers that are the same in
// every microbatch and step; dropout's numbers are loaded with the microbatch (Dropout::drawn). So no part has
//
//   transfers, and waits for them         they involve other ranks
//   load                                  the host writes tokens and dropout's numbers
//   keep_loss                             it writes to its microbatch's place
//   zero of a slot                        the sharding records the slot's unit
//   recompute without its backward        recomputed tensors stay in scratch memory until then
//
// Two parts are one graph if their instructions differ only in the microbatch, and, with products in 8 bits, if neither
// microbatch has masked sequences, which do not count in scales. In a step of a single rank the first
// microbatch is one graph, since its products write gradients, and all others are another.
#pragma once

#include <vector>

#include "trainer/program/program.h"

namespace megalith {

struct ProgramPart {
  size_t begin, end;  // instructions of the program
  int32_t graph;      // Instruction::none: run one by one
  bool operator==(const ProgramPart&) const = default;
};

// The program in order, in parts.
struct ProgramParts {
  std::vector<ProgramPart> parts;
  size_t graphs = 0;  // number of graphs, numbered from 0
};
ProgramParts parts_of(const Plan& plan, const Program& program);

// Returns whether the plan has graphs. It has none with
//
//   tensor parallelism       because its sums over ranks are between the ops of a layer;
//   several pipeline stages  because making a graph may wait for all work in flight, and two stages that make theirs
//                            while each receives from the other would deadlock. Ranks with the same program do not:
//                            the rank furthest behind waits only for calls that all others have issued
bool has_graphs(const Plan& plan);

}  // namespace megalith
