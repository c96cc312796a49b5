// The matcher plays the transfers that a dry run recorded and finds whether they all meet: every member of a group must
// make the same collective calls in the same order with the same sizes, and every message sent must be received. It
// needs no devices, and a rank that forgot a call, made one too many, or made them in another order shows.
#pragma once

#include <string>
#include <vector>

#include "trainer/runtime/mesh.h"

namespace megalith {

using Traces = std::vector<std::vector<TraceEvent>>;  // by rank

// Empty when everything matches and drains. Otherwise one sentence a fault: axis, group, ranks, position and calls.
std::vector<std::string> match(const MeshShape& mesh, const Traces& traces);

}  // namespace megalith
