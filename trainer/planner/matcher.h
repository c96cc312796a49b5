// The matcher plays the traces of all ranks together, as a job would run, and finds whether every transfer meets its
// partners and nobody waits forever. It needs no devices.
//
// Laws of the play:
// - Beginning a transfer blocks nobody. A wait blocks its rank until the transfer is complete.
// - A collective is complete when every member of the group has begun its n-th collective on the channel, and they
//   agree on kind, bytes and root.
// - A message is complete, at both ends, when both have begun it: the k-th send from one member to another on a channel
//   meets the k-th receive there, of the same size. So a program that needs its sends to be buffered is at fault.
// - A copy between device and host needs no partner: it is complete when it has begun.
// - In the end every rank has reached the end of its trace, and nothing that began is incomplete.
#pragma once

#include <string>
#include <vector>

#include "trainer/communication/mesh.h"

namespace megalith {

using Traces = std::vector<std::vector<TraceEvent>>;  // by rank

// Empty when all is well. Otherwise one sentence a fault: who, which transfer on which channel and group, and where in
// the trace; for ranks that wait for one another, the whole circle.
std::vector<std::string> match(const MeshShape& mesh, const Traces& traces);

}  // namespace megalith
