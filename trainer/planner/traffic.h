// Traffic counts the bytes that each rank sends in a step, by channel and by kind of link.
//
// A collective goes round a ring of its group's members in the order of their ranks, so node by node: every member
// sends ring_bytes to the next one; in an all-to-all it sends each other member an equal part.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/planner/matcher.h"

namespace megalith {

struct Traffic {
  int64_t calls = 0;
  double payload = 0;                     // bytes
  double in_node = 0, between_nodes = 0;  // bytes sent

  double sent() const { return in_node + between_nodes; }
  Traffic& operator+=(const Traffic& other);
};

// Receives and copies between device and host have calls and payload, but send nothing.
using RankTraffic = std::map<std::pair<Channel, Transfer>, Traffic>;

// Returns the traffic by rank.
std::vector<RankTraffic> traffic_of(const MeshShape& mesh, const Traces& traces);

// Returns a row for each kind of transfer on each channel: the rank that sends most, and the whole job.
std::string traffic_table(const MeshShape& mesh, const std::vector<RankTraffic>& ranks);

}  // namespace megalith
