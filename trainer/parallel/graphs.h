// Which parts of a step a GPU is given as one launch each (kernels/stream/launch_graph.h). That a part may be is known
// from the list of instructions: they do nothing but launch ops, in memory that the instruction names, with numbers
// that are the same in every microbatch and step; those that dropout draws by are loaded with the microbatch
// (Dropout::drawn). So no part holds
//
//   transfers, and what waits for them    they are calls to others
//   load                                  the host writes tokens, and what dropout draws by
//   keep_loss                             which writes to a place of its microbatch
//   zero of a slot                        the sharding notes whose the slot is
//   recompute without its backward        what is recomputed has scratch memory until then
//
// Two parts are one graph where their instructions differ in nothing but the microbatch. In a step of one rank the
// first microbatch is a graph, for its products write gradients, and all others are another one.
#pragma once

#include <vector>

#include "trainer/program/program.h"

namespace megalith {

struct ProgramPart {
  size_t begin, end;  // instructions of the program
  int32_t graph;      // Instruction::none: obeyed one by one
  bool operator==(const ProgramPart&) const = default;
};

// The program in order, in parts.
struct ProgramParts {
  std::vector<ProgramPart> parts;
  size_t graphs = 0;  // numbered from 0
};
ProgramParts parts_of(const Program& program);

// Returns whether the plan has graphs. It has none with
//
//   tensor parallelism       because its sums over ranks lie between the ops of a layer;
//   several pipeline stages  because making a graph may wait for all work under way, and two stages that make theirs
//                            while each receives from the other would deadlock. Ranks with the same program do not:
//                            the rank furthest behind waits only for calls that all others have issued
bool has_graphs(const Plan& plan);

}  // namespace megalith
