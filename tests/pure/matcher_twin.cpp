#include "tests/pure/matcher_twin.h"

#include <array>
#include <map>
#include <vector>

namespace megalith {

bool is_message(const TraceEvent& e) { return e.transfer == Transfer::send || e.transfer == Transfer::recv; }
bool same_call(const TraceEvent& a, const TraceEvent& b) {
  return a.transfer == b.transfer && a.bytes == b.bytes && a.peer == b.peer;
}

bool drains(const Job& job) {
  struct At {
    size_t rank, event;
  };
  std::map<std::array<int, 3>, std::vector<At>> collectives;            // channel, group, index
  std::map<std::array<int, 4>, std::array<std::vector<At>, 2>> routes;  // channel, group, from, to
  std::vector<std::map<int32_t, std::vector<At>>> partners(job.traces.size());
  std::vector<size_t> first;
  size_t total = 0;
  for (size_t rank = 0; rank < job.traces.size(); rank++) {
    first.push_back(total);
    total += job.traces[rank].size();
    for (size_t i = 0; i < job.traces[rank].size(); i++) {
      const TraceEvent& e = job.traces[rank][i];
      if (e.kind != TraceEvent::Kind::begin) continue;
      const auto place = job.mesh.position(static_cast<int>(rank), static_cast<Channel>(e.channel));
      if (!is_message(e)) collectives[{e.channel, place.group, place.index}].push_back({rank, i});
      const bool sends = e.transfer == Transfer::send;
      const int from = sends ? place.index : e.peer, to = sends ? e.peer : place.index;
      if (is_message(e)) routes[{e.channel, place.group, from, to}][sends].push_back({rank, i});
    }
  }
  const auto event = [&](At at) -> const TraceEvent& { return job.traces[at.rank][at.event]; };
  const auto meet = [&](At a, At b) { partners[a.rank][event(a).id].push_back(b); };
  for (const auto& [key, mine] : collectives) {
    const int size = job.mesh.position(static_cast<int>(mine.front().rank), static_cast<Channel>(key[0])).size;
    for (int other = 0; other < size; other++) {
      const std::vector<At>& theirs = collectives[{key[0], key[1], other}];
      if (theirs.size() != mine.size()) return false;
      for (size_t n = 0; n < mine.size(); n++) {
        if (!same_call(event(mine[n]), event(theirs[n]))) return false;
        meet(mine[n], theirs[n]);
      }
    }
  }
  for (const auto& [key, ends] : routes) {
    if (ends[0].size() != ends[1].size()) return false;
    for (size_t n = 0; n < ends[0].size(); n++) {
      if (event(ends[0][n]).bytes != event(ends[1][n]).bytes) return false;
      meet(ends[0][n], ends[1][n]);
      meet(ends[1][n], ends[0][n]);
    }
  }
  std::vector<std::vector<size_t>> later(total);
  std::vector<int> earlier(total, 0);
  const auto before = [&](size_t a, size_t b) {
    later[a].push_back(b);
    earlier[b]++;
  };
  for (size_t rank = 0; rank < job.traces.size(); rank++)
    for (size_t i = 0; i < job.traces[rank].size(); i++) {
      if (i > 0) before(first[rank] + i - 1, first[rank] + i);
      if (job.traces[rank][i].kind == TraceEvent::Kind::wait)
        for (At p : partners[rank][job.traces[rank][i].id]) before(first[p.rank] + p.event, first[rank] + i);
    }
  std::vector<size_t> free;
  for (size_t node = 0; node < total; node++)
    if (earlier[node] == 0) free.push_back(node);
  size_t seen = 0;
  for (; !free.empty(); seen++) {
    const size_t node = free.back();
    free.pop_back();
    for (size_t next : later[node])
      if (--earlier[next] == 0) free.push_back(next);
  }
  return seen == total;
}

}  // namespace megalith
