#include "trainer/planner/transfer_time.h"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "trainer/communication/communicator.h"

namespace megalith {

namespace {

constexpr double giga = 1e9, micro = 1e-6;

double bandwidth_inside(const Hardware& h) { return h.node.link * giga * h.calibrated.node_link; }

// `sharing` rings or messages share the network of a node.
double bandwidth_between(const Hardware& h, double sharing) {
  return std::min(h.network.link / sharing, h.node.link) * giga * h.calibrated.network_link;
}

double ranks_a_node(const MeshShape& mesh) {
  return static_cast<double>(mesh.ranks_per_node > 0 ? mesh.ranks_per_node : mesh.size());
}

// Returns the bytes a rank reads and writes to add up: two ranks sum whole tensors, more ranks a part each.
double bytes_added(Transfer transfer, double payload, int size, int members) {
  const double part = payload * (1 + 1.0 / size);
  if (transfer == Transfer::reduce_scatter_to) return payload * (size + 1.0) / members;
  if (transfer == Transfer::reduce_scatter) return part;
  if (transfer == Transfer::all_reduce) return size == 2 ? 3 * payload : part;
  return 0;
}

std::vector<int> members_of(const MeshShape& mesh, int rank, Channel channel) {
  std::vector<int> members;
  const int group = mesh.position(rank, channel).group;
  for (int other = 0; other < mesh.size(); other++)
    if (mesh.position(other, channel).group == group) members.push_back(other);
  return members;
}

}  // namespace

GroupLink group_link(const MeshShape& mesh, const Hardware& hardware, int rank, Channel channel) {
  if (channel == Channel::host) return {.link = Link::host, .bandwidth = hardware.host.link * giga};
  const std::vector<int> members = members_of(mesh, rank, channel);
  const auto size = static_cast<int>(members.size());
  std::map<int, int> by_node;  // members on each node
  int crossings = 0;           // steps of the ring that leave a node
  for (int i = 0; i < size; i++) {
    const auto node = [&](int member) { return mesh.node(members[static_cast<size_t>(member % size)]); };
    by_node[node(i)]++;
    crossings += node(i) != node(i + 1);
  }
  const double node_step = hardware.node.latency * micro, network_step = hardware.network.latency * micro;
  // The last part has passed all steps of the ring except one.
  const int far = std::min(crossings, size - 1), near = size - 1 - far;
  const int chain = std::ranges::max_element(by_node, {}, [](const auto& n) { return n.second; })->second - 1;
  const int levels = std::bit_width(by_node.size() - 1);  // the logarithm, rounded up
  const int here = by_node[mesh.node(rank)];
  const double sharing = ranks_a_node(mesh) / here;
  const bool inside = by_node.size() == 1;
  const double near_share = static_cast<double>(here - 1) / size, far_share = static_cast<double>(size - here) / size;
  return {.size = size,
          .link = inside ? Link::node : Link::network,
          .bandwidth = inside ? bandwidth_inside(hardware) : bandwidth_between(hardware, sharing),
          .ring = near * node_step + far * network_step,
          .tree = chain * node_step + levels * network_step,
          .direct = std::max(near_share / bandwidth_inside(hardware),
                             inside ? 0 : far_share / bandwidth_between(hardware, ranks_a_node(mesh))),
          .step = inside ? node_step : network_step,
          .added = hardware.device.kind != DeviceKind::cpu
                       ? 0
                       : ranks_a_node(mesh) / (hardware.device.bandwidth * giga * hardware.calibrated.memory)};
}

GroupLink message_link(const MeshShape& mesh, const Hardware& hardware, int rank, int peer) {
  const bool inside = mesh.node(rank) == mesh.node(peer);
  return {.size = 2,
          .link = inside ? Link::node : Link::network,
          .bandwidth = inside ? bandwidth_inside(hardware) : bandwidth_between(hardware, ranks_a_node(mesh)),
          .ring = micro * (inside ? hardware.node.latency : hardware.network.latency)};
}

double transfer_time(const GroupLink& group, Transfer transfer, double payload, const Hardware& hardware, int members) {
  if (group.link == Link::host) return payload / group.bandwidth;
  if (transfer == Transfer::send || transfer == Transfer::recv) return group.ring + payload / group.bandwidth;
  const double delay = hardware.calibrated.collective_delay * micro;
  if (transfer == Transfer::all_to_all) return delay + group.step + payload * group.direct;
  const double latency = transfer == Transfer::all_reduce ? 2 * std::min(group.ring, group.tree) : group.ring;
  const bool of_some = transfer == Transfer::all_gather_of || transfer == Transfer::reduce_scatter_to;
  const double busiest = of_some ? payload : ring_bytes(transfer, payload, group.size);
  return delay + latency + busiest / group.bandwidth +
         bytes_added(transfer, payload, group.size, members) * group.added;
}

}  // namespace megalith
