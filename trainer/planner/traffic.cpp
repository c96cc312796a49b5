#include "trainer/planner/traffic.h"

#include <algorithm>

#include "kernels/stream/arena.h"
#include "kernels/system/counted.h"
#include "trainer/communication/communicator.h"
#include "trainer/planner/readable.h"

namespace megalith {

namespace {

int next_in_ring(const std::vector<int>& members, int rank) {
  const auto after = std::upper_bound(members.begin(), members.end(), rank);
  return after == members.end() ? members.front() : *after;
}

int member(const MeshShape& mesh, Channel channel, const std::vector<int>& members, int index) {
  return *std::find_if(members.begin(), members.end(), [&](int r) { return mesh.position(r, channel).index == index; });
}

std::string gib_text(double bytes) { return bytes > 0 && gib(bytes) < 1e-4 ? "<0.0001" : readable(gib(bytes)); }

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  calls += other.calls;
  payload += other.payload;
  in_node += other.in_node;
  between_nodes += other.between_nodes;
  return *this;
}

std::vector<RankTraffic> traffic_of(const MeshShape& mesh, const Traces& traces) {
  CHECK(static_cast<int>(traces.size()) == mesh.size(), "{} traces for a mesh of {} ranks", traces.size(), mesh.size());
  std::vector<RankTraffic> all(traces.size());
  for (Channel channel : all_channels) {
    if (mesh.position(0, channel).size == 1) continue;
    std::map<int, std::vector<int>> groups;  // ranks, ascending
    for (int rank = 0; rank < mesh.size(); rank++) groups[mesh.position(rank, channel).group].push_back(rank);
    for (const auto& [group, members] : groups)
      for (int rank : members) {
        std::map<int, int> peers;  // by index in the group
        const int next = next_in_ring(members, rank), size = static_cast<int>(members.size());
        const auto away = std::ranges::count_if(members, [&](int r) { return mesh.node(r) != mesh.node(rank); });
        for (const TraceEvent& e : transfers_on(traces[static_cast<size_t>(rank)], static_cast<int>(channel))) {
          int to = next;
          if (e.transfer == Transfer::send) {
            const auto [peer, is_new] = peers.emplace(e.peer, -1);
            if (is_new) peer->second = member(mesh, channel, members, e.peer);
            to = peer->second;
          }
          const auto payload = static_cast<double>(e.bytes);
          const double sent = ring_bytes(e.transfer, payload, size);
          const double leaves = e.transfer == Transfer::all_to_all ? payload * static_cast<double>(away) / size
                                : mesh.node(rank) == mesh.node(to) ? 0
                                                                   : sent;
          all[static_cast<size_t>(rank)][{channel, e.transfer}] +=
              {.calls = 1, .payload = payload, .in_node = sent - leaves, .between_nodes = leaves};
        }
      }
  }
  for (size_t rank = 0; rank < traces.size(); rank++)
    for (const TraceEvent& e : transfers_on(traces[rank], host_channel))
      all[rank][{Channel::host, e.transfer}] += {.calls = 1, .payload = static_cast<double>(e.bytes)};
  return all;
}

std::string traffic_table(const MeshShape& mesh, const std::vector<RankTraffic>& ranks) {
  RankTraffic busiest, job;
  std::map<int, double> out_of_node;
  for (size_t rank = 0; rank < ranks.size(); rank++)
    for (const auto& [what, traffic] : ranks[rank]) {
      if (what.second == Transfer::recv) continue;
      job[what] += traffic;
      Traffic& most = busiest[what];
      if (std::pair(traffic.sent(), traffic.payload) >= std::pair(most.sent(), most.payload)) most = traffic;
      out_of_node[mesh.node(static_cast<int>(rank))] += traffic.between_nodes;
    }
  if (job.empty()) return "traffic: none\n";

  std::string text = fmt::format(
      "traffic of one step, GiB, inside nodes and between them; collectives go round a ring in the order of the ranks\n"
      "  {:>74}{:>25}\n"
      "  {:<20}{:<15}{:>3}{:>8}{:>11}{:>11}{:>11}{:>14}{:>11}\n",
      "of the rank that sends most", "of all ranks", "channel", "", "of", "calls", "payload", "inside", "between",
      "inside", "between");
  Traffic whole;
  for (const auto& [what, most] : busiest) {
    const Traffic& all = job[what];
    text += fmt::format("  {:<20}{:<15}{:>3}{:>8}{:>11}{:>11}{:>11}{:>14}{:>11}\n", name_of(what.first),
                        name_of(what.second), mesh.position(0, what.first).size, most.calls, gib_text(most.payload),
                        gib_text(most.in_node), gib_text(most.between_nodes), gib_text(all.in_node),
                        gib_text(all.between_nodes));
    whole += all;
  }
  text += fmt::format("  {:<79}{:>14}{:>11}\n", "together", gib_text(whole.in_node), gib_text(whole.between_nodes));
  const int nodes = mesh.node(mesh.size() - 1) + 1;
  if (nodes == 1) return text + "  all ranks are on one node\n";
  const auto fullest = std::ranges::max_element(out_of_node, {}, [](const auto& node) { return node.second; });
  return text + fmt::format("  {} nodes of {}; node {} sends most to others: {} GiB\n", nodes,
                            counted(mesh.ranks_per_node, "rank"), fullest->first, gib_text(fullest->second));
}

}  // namespace megalith
