#include "trainer/planner/matcher.h"

#include <algorithm>
#include <deque>
#include <map>

#include "kernels/system/check.h"

namespace megalith {

namespace {

// An End is the event at which a rank began a transfer.
struct End {
  int rank;
  size_t at;  // index in the rank's trace
};

// A Match is a collective or a message that at least one rank has begun.
struct Match {
  std::vector<End> begun;
  bool complete = false;
};

struct Group {
  std::vector<int> members;                                    // ranks, by index
  std::vector<size_t> calls;                                   // collectives begun, by member
  std::vector<size_t> collectives;                             // matches, by call
  std::map<std::pair<int, int>, std::deque<size_t>> messages;  // incomplete matches, by sender and receiver
  bool disagrees = false;                                      // reported once; later faults follow from it
};

class Matcher {
 public:
  Matcher(const MeshShape& mesh, const Traces& traces)
      : mesh_(mesh),
        traces_(traces),
        at_(traces.size(), 0),
        match_of_(traces.size()),
        members_(traces.size()),
        groups_(traces.size() * num_channels) {
    for (int rank = 0; rank < mesh_.size(); rank++) {
      ready_.push_back(rank);
      for (Channel channel : all_channels) {
        const MeshShape::Position place = mesh_.position(rank, channel);
        members_[static_cast<size_t>(rank)][static_cast<size_t>(channel)] = place;
        Group& g = group(static_cast<size_t>(channel), place);
        g.members.resize(static_cast<size_t>(place.size));
        g.calls.resize(static_cast<size_t>(place.size));
        g.members[static_cast<size_t>(place.index)] = rank;
      }
    }
  }

  std::vector<std::string> run() {
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      advance(rank);
    }
    const size_t before = faults_.size();
    report_deadlock();
    if (faults_.size() == before) report_incomplete();
    return std::move(faults_);
  }

 private:
  const std::vector<TraceEvent>& trace(int rank) const { return traces_[static_cast<size_t>(rank)]; }
  const TraceEvent& event(End end) const { return trace(end.rank)[end.at]; }
  bool done(int rank) const { return at_[static_cast<size_t>(rank)] == trace(rank).size(); }

  void advance(int rank) {
    for (size_t& at = at_[static_cast<size_t>(rank)]; at < trace(rank).size(); at++) {
      const TraceEvent& e = trace(rank)[at];
      if (e.kind == TraceEvent::Kind::begin) begin({rank, at});
      if (e.kind == TraceEvent::Kind::wait && !is_complete(rank, at)) return;
    }
  }

  bool is_complete(int rank, size_t at) {
    const size_t match = match_of(rank, trace(rank)[at].id);
    if (match != none) return matches_[match].complete;
    faults_.push_back(fmt::format("{} waits at event {} for a transfer that it has not begun", who(rank), at));
    return true;
  }

  void begin(End end) {
    const TraceEvent& e = event(end);
    const bool alone = e.channel == host_channel;
    CHECK(e.id >= 0 && (alone || (0 <= e.channel && e.channel < num_channels)),
          "{} uses channel {} at event {}; a mesh has {}", who(end.rank), e.channel, end.at, num_channels);
    const size_t match = alone ? new_match({.begun = {end}, .complete = true}) : begin_with_partners(end);
    auto& matches = match_of_[static_cast<size_t>(end.rank)];
    const auto id = static_cast<size_t>(e.id);
    if (matches.size() <= id) matches.resize(id + 1, none);
    if (matches[id] != none)
      faults_.push_back(fmt::format("{}: another transfer of the trace has its number, {}", describe(end), e.id));
    matches[id] = match;
    if (matches_[match].complete) wake(matches_[match]);
  }

  size_t begin_with_partners(End end) {
    const TraceEvent& e = event(end);
    const MeshShape::Position place = place_of(end);
    CHECK(is_message(e.transfer) ? 0 <= e.peer && e.peer < place.size : e.peer < place.size, "{}: no such member",
          describe(end));
    Group& g = group(static_cast<size_t>(e.channel), place);
    return is_message(e.transfer) ? message(g, place.index, end) : collective(g, place.index, end);
  }

  size_t collective(Group& g, int index, End end) {
    const size_t call = g.calls[static_cast<size_t>(index)]++;
    if (call == g.collectives.size()) g.collectives.push_back(new_match());
    Match& match = matches_[g.collectives[call]];
    match.begun.push_back(end);
    const TraceEvent &first = event(match.begun.front()), &here = event(end);
    if (here.transfer != first.transfer || here.bytes != first.bytes || here.peer != first.peer)
      disagree(g, match.begun.front(), end, fmt::format("in collective {}", call));
    match.complete = match.begun.size() == g.members.size();
    return g.collectives[call];
  }

  size_t message(Group& g, int index, End end) {
    const TraceEvent& e = event(end);
    std::deque<size_t>& waiting =
        g.messages[e.transfer == Transfer::send ? std::pair(index, e.peer) : std::pair(e.peer, index)];
    if (waiting.empty() || event(matches_[waiting.front()].begun.front()).transfer == e.transfer) {
      waiting.push_back(new_match({.begun = {end}}));
      return waiting.back();
    }
    const size_t number = waiting.front();
    waiting.pop_front();
    Match& match = matches_[number];
    match.begun.push_back(end);
    match.complete = true;
    if (event(match.begun.front()).bytes != e.bytes) disagree(g, match.begun.front(), end, "in size");
    return number;
  }

  size_t new_match(Match match = {}) {
    matches_.push_back(std::move(match));
    return matches_.size() - 1;
  }

  // Wakes the ranks that wait for the match. The last one in `begun` is running.
  void wake(const Match& match) {
    for (size_t i = 0; i + 1 < match.begun.size(); i++) {
      const int rank = match.begun[i].rank;
      if (const Match* awaited = awaited_by(rank); awaited == &match) ready_.push_back(rank);
    }
  }

  // Returns the match for which the rank waits.
  const Match* awaited_by(int rank) const {
    if (done(rank)) return nullptr;
    const TraceEvent& e = trace(rank)[at_[static_cast<size_t>(rank)]];
    if (e.kind != TraceEvent::Kind::wait) return nullptr;
    const size_t match = match_of(rank, e.id);
    return match == none ? nullptr : &matches_[match];
  }

  void disagree(Group& g, End a, End b, const std::string& where) {
    if (g.disagrees) return;
    g.disagrees = true;
    faults_.push_back(fmt::format("{} and {} disagree {}", describe(a), describe(b), where));
  }

  std::vector<int> missing(const Match& match) const {
    const End some = match.begun.front();
    const Group& g = group_of(some);
    if (is_message(event(some).transfer)) return {g.members[static_cast<size_t>(event(some).peer)]};
    std::vector<int> ranks = g.members;
    for (End end : match.begun) std::erase(ranks, end.rank);
    return ranks;
  }

  void report_deadlock() {
    std::vector<int> stuck;
    for (int rank = 0; rank < mesh_.size(); rank++)
      if (!done(rank)) stuck.push_back(rank);
    if (stuck.empty()) return;
    // Follow stuck ranks, each to a stuck one for which it waits, until one comes twice.
    std::vector<int> path{stuck.front()};
    for (;;) {
      const std::vector<int> lacks = missing(*awaited_by(path.back()));
      const auto next = std::find_if(lacks.begin(), lacks.end(), [this](int rank) { return !done(rank); });
      if (next == lacks.end()) break;
      const auto seen = std::find(path.begin(), path.end(), *next);
      if (seen == path.end()) {
        path.push_back(*next);
        continue;
      }
      path.erase(path.begin(), seen);
      path.push_back(path.front());
      std::string circle = fmt::format("ranks wait for one another: {}", who(path.front()));
      for (size_t i = 1; i < path.size(); i++)
        circle += fmt::format(" for {}{}", who(path[i]), i + 1 < path.size() ? ", that" : "");
      faults_.push_back(circle);
      break;
    }
    for (int rank : stuck) {
      const Match& match = *awaited_by(rank);
      const End mine = *std::find_if(match.begun.begin(), match.begun.end(), [=](End e) { return e.rank == rank; });
      faults_.push_back(fmt::format("{} blocks event {}, but {}", describe(mine), at_[static_cast<size_t>(rank)],
                                    who_has_not(match)));
    }
  }

  void report_incomplete() {
    for (const Match& match : matches_)
      if (!match.complete)
        faults_.push_back(fmt::format("{} is never complete: {}", describe(match.begun.front()), who_has_not(match)));
  }

  std::string who_has_not(const Match& match) const {
    const std::vector<int> ranks = missing(match);
    const int first = ranks.front();
    return fmt::format("{}{} {}", who(first), ranks.size() > 1 ? fmt::format(" and {} more", ranks.size() - 1) : "",
                       done(first) ? "reached its end without it"
                                   : fmt::format("has not begun it at event {}", at_[static_cast<size_t>(first)]));
  }

  static constexpr size_t none = static_cast<size_t>(-1);
  size_t match_of(int rank, int32_t id) const {
    const auto& matches = match_of_[static_cast<size_t>(rank)];
    return 0 <= id && static_cast<size_t>(id) < matches.size() ? matches[static_cast<size_t>(id)] : none;
  }
  MeshShape::Position place_of(End end) const {
    return members_[static_cast<size_t>(end.rank)][static_cast<size_t>(event(end).channel)];
  }
  Group& group(size_t channel, MeshShape::Position place) {
    return groups_[channel * traces_.size() + static_cast<size_t>(place.group)];
  }
  const Group& group_of(End end) const {
    return groups_[static_cast<size_t>(event(end).channel) * traces_.size() + static_cast<size_t>(place_of(end).group)];
  }
  std::string who(int rank) const { return mesh_.describe(rank); }

  // Returns "shard of rank 0: all_gather of 64 bytes that rank 1 (shard 1) began at event 4".
  std::string describe(End end) const {
    const TraceEvent& e = event(end);
    std::string with;
    if (e.transfer == Transfer::send) with = fmt::format(" to member {}", e.peer);
    if (e.transfer == Transfer::recv || e.transfer == Transfer::broadcast)
      with = fmt::format(" from member {}", e.peer);
    return fmt::format("{}, group of rank {}: {} of {} bytes{} that {} began at event {}",
                       name_of(static_cast<Channel>(e.channel)),
                       mesh_.position(end.rank, static_cast<Channel>(e.channel)).group, name_of(e.transfer), e.bytes,
                       with, who(end.rank), end.at);
  }

  const MeshShape mesh_;
  const Traces& traces_;
  std::vector<size_t> at_;                     // next event, by rank
  std::vector<std::vector<size_t>> match_of_;  // by rank and number of the transfer
  std::vector<std::array<MeshShape::Position, num_channels>> members_;
  std::vector<Group> groups_;  // by channel and number
  std::deque<Match> matches_;
  std::vector<int> ready_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> match(const MeshShape& mesh, const Traces& traces) {
  CHECK(static_cast<int>(traces.size()) == mesh.size(), "{} traces for a mesh of {} ranks", traces.size(), mesh.size());
  return Matcher(mesh, traces).run();
}

}  // namespace megalith
