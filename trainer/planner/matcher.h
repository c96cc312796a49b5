// The matcher simulates the traces of all ranks together and finds transfers without partners and deadlocks. Its laws:
// - Beginning a transfer blocks nobody. A wait blocks its rank until the transfer is complete.
// - A collective is complete when every member of the group has begun its n-th collective on the channel, and they
//   agree on kind, bytes and root.
// - A message is complete, at both ends, when both have begun it: the k-th send from one member to another on a channel
//   meets the k-th receive there, of the same size. So a program that needs buffered sends is at fault.
// - A copy between device and host is complete when it has begun.
// - At the end every rank has reached the end of its trace, and everything that began is complete.
#pragma once

#include <string>
#include <vector>

#include "trainer/communication/mesh_shape.h"

namespace megalith {

using Traces = std::vector<std::vector<TraceEvent>>;  // by rank

// Returns a sentence for each fault: the rank, the transfer and its place in the trace; for a deadlock, the whole
// circle.
std::vector<std::string> match(const MeshShape& mesh, const Traces& traces);

}  // namespace megalith
