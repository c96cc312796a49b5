#include "trainer/planner/transfer_time.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace megalith {

namespace {

constexpr double giga = 1e9, micro = 1e-6;

GroupLink inside(const Hardware& h, int size) {
  return {.size = size,
          .link = Link::node,
          .bandwidth = h.node.link * giga * h.calibrated.node_link,
          .latency = h.node.latency * micro};
}

// Of a node's `sharing` rings or messages each.
GroupLink between(const Hardware& h, int size, double sharing) {
  return {.size = size,
          .link = Link::network,
          .bandwidth = std::min(h.network.link / sharing, h.node.link) * giga * h.calibrated.network_link,
          .latency = h.network.latency * micro};
}

}  // namespace

GroupLink group_link(const MeshShape& mesh, const Hardware& hardware, int rank, Channel channel) {
  if (channel == Channel::host)
    return {.size = 1, .link = Link::host, .bandwidth = hardware.host.link * giga, .latency = 0};
  const MeshShape::Place here = mesh.place(rank, channel);
  std::map<int, int> by_node;  // members on each node
  int neighbour = rank;
  for (int other = 0; other < mesh.size(); other++) {
    const MeshShape::Place place = mesh.place(other, channel);
    if (place.group != here.group) continue;
    by_node[mesh.node(other)]++;
    if (place.index == (here.index + 1) % here.size) neighbour = other;
  }
  const bool messages = channel == Channel::forward || channel == Channel::backward;
  const int per_node = mesh.ranks_per_node > 0 ? mesh.ranks_per_node : mesh.size();
  if (messages)
    return mesh.node(neighbour) == mesh.node(rank) ? inside(hardware, here.size)
                                                   : between(hardware, here.size, per_node);
  if (by_node.size() == 1) return inside(hardware, here.size);
  return between(hardware, here.size, static_cast<double>(per_node) / by_node[mesh.node(rank)]);
}

double transfer_time(const GroupLink& group, Transfer transfer, double payload, const Hardware& hardware) {
  const bool copy = group.link == Link::host;
  const bool message = transfer == Transfer::send || transfer == Transfer::recv;
  // A ring has size - 1 steps, and a sum goes round twice; small sums go up and down a tree.
  double steps = message || copy ? 1 : group.size - 1;
  if (transfer == Transfer::all_reduce) steps = 2 * std::min(steps, std::ceil(std::log2(group.size)));
  const double sent = message || copy ? payload : ring_bytes(transfer, payload, group.size);
  const double delay = copy || message ? 0 : hardware.calibrated.collective_delay * micro;
  return delay + steps * group.latency + sent / group.bandwidth;
}

}  // namespace megalith
