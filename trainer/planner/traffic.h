// Traffic: how many bytes each rank sends in a step, on which channel, and over which kind of link.
//
// Laws: a collective goes round a ring of its group's members in the order of their ranks, so node by node, and every
// member sends ring_bytes to the next one; in an all-to-all it sends each other member a piece. A message goes from its
// sender to its receiver. What a rank sends stays inside its node if the other end is on the same node
// (MeshShape::node), and goes between nodes otherwise.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/planner/matcher.h"

namespace megalith {

struct Traffic {
  int64_t calls = 0;
  double payload = 0;                     // bytes of the tensors
  double in_node = 0, between_nodes = 0;  // bytes sent

  double sent() const { return in_node + between_nodes; }
  Traffic& operator+=(const Traffic& other);
};

// Of one rank. Messages stand where they are sent: recv has calls and payload, and sends nothing. So do the copies
// between device and host, which leave no rank.
using RankTraffic = std::map<std::pair<Channel, Transfer>, Traffic>;

// By rank; a pure function of what the ranks did.
std::vector<RankTraffic> traffic_of(const MeshShape& mesh, const Traces& traces);

// One row for each kind of transfer on each channel: the rank that sends most of it, and the whole job.
std::string traffic_table(const MeshShape& mesh, const std::vector<RankTraffic>& ranks);

}  // namespace megalith
