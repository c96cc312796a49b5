#include "trainer/planner/matcher.h"

#include <algorithm>
#include <deque>
#include <map>

namespace megalith {

namespace {

bool is_message(const TraceEvent& e) { return e.transfer == Transfer::send || e.transfer == Transfer::recv; }

// One end of a transfer: the event of a rank that began it.
struct End {
  int rank;
  size_t at;  // in the rank's trace
};

// A collective that some members have begun, or a message of which one end has.
struct Meeting {
  std::vector<End> begun;
  bool complete = false;
};

struct Route {
  std::deque<size_t> sends, recvs;  // meetings that lack the other end
};

struct Group {
  std::vector<int> members;         // ranks, by index
  std::vector<size_t> calls;        // collectives begun, by member
  std::vector<size_t> collectives;  // meetings, by call
  std::map<std::pair<int, int>, Route> routes;
  bool disagrees = false;  // said once: what follows is its consequence
};

class Play {
 public:
  Play(const MeshShape& mesh, const Traces& traces)
      : mesh_(mesh),
        traces_(traces),
        at_(traces.size(), 0),
        meeting_of_(traces.size()),
        places_(traces.size()),
        groups_(traces.size() * num_channels) {
    for (int rank = 0; rank < mesh_.size(); rank++) {
      ready_.push_back(rank);
      for (Channel channel : all_channels) {
        const MeshShape::Place place = mesh_.place(rank, channel);
        places_[static_cast<size_t>(rank)][static_cast<size_t>(channel)] = place;
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
    say_who_is_stuck();
    if (faults_.size() == before) say_what_is_left();
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
      if (e.kind == TraceEvent::Kind::wait && !over(rank, at)) return;
    }
  }

  // Whether the transfer that the event waits for is complete.
  bool over(int rank, size_t at) {
    const size_t meeting = meeting_of(rank, trace(rank)[at].id);
    if (meeting != none) return meetings_[meeting].complete;
    faults_.push_back(fmt::format("{} waits at event {} for a transfer that it has not begun", who(rank), at));
    return true;
  }

  void begin(End end) {
    const TraceEvent& e = event(end);
    const bool alone = e.channel == host_channel;
    CHECK(e.id >= 0 && (alone || (0 <= e.channel && e.channel < num_channels)),
          "{} uses channel {} at event {}; a mesh has {}", who(end.rank), e.channel, end.at, num_channels);
    const size_t meeting = alone ? new_meeting({.begun = {end}, .complete = true}) : meet(end);
    auto& meetings = meeting_of_[static_cast<size_t>(end.rank)];
    const auto id = static_cast<size_t>(e.id);
    if (meetings.size() <= id) meetings.resize(id + 1, none);
    if (meetings[id] != none)
      faults_.push_back(fmt::format("{}: another transfer of the trace has its number, {}", describe(end), e.id));
    meetings[id] = meeting;
    if (meetings_[meeting].complete) wake(meetings_[meeting]);
  }

  size_t meet(End end) {
    const TraceEvent& e = event(end);
    const MeshShape::Place place = place_of(end);
    CHECK(is_message(e) ? 0 <= e.peer && e.peer < place.size : e.peer < place.size, "{}: no such member",
          describe(end));
    Group& g = group(static_cast<size_t>(e.channel), place);
    return is_message(e) ? message(g, place.index, end) : collective(g, place.index, end);
  }

  size_t collective(Group& g, int index, End end) {
    const size_t call = g.calls[static_cast<size_t>(index)]++;
    if (call == g.collectives.size()) g.collectives.push_back(new_meeting());
    Meeting& meeting = meetings_[g.collectives[call]];
    meeting.begun.push_back(end);
    const TraceEvent &first = event(meeting.begun.front()), &here = event(end);
    if (here.transfer != first.transfer || here.bytes != first.bytes || here.peer != first.peer)
      disagree(g, meeting.begun.front(), end, fmt::format("in collective {}", call));
    meeting.complete = meeting.begun.size() == g.members.size();
    return g.collectives[call];
  }

  size_t message(Group& g, int index, End end) {
    const TraceEvent& e = event(end);
    const bool sends = e.transfer == Transfer::send;
    Route& route = g.routes[sends ? std::pair(index, e.peer) : std::pair(e.peer, index)];
    auto &mine = sends ? route.sends : route.recvs, &theirs = sends ? route.recvs : route.sends;
    if (theirs.empty()) {
      mine.push_back(new_meeting());
      meetings_[mine.back()].begun.push_back(end);
      return mine.back();
    }
    const size_t number = theirs.front();
    theirs.pop_front();
    Meeting& meeting = meetings_[number];
    meeting.begun.push_back(end);
    meeting.complete = true;
    if (event(meeting.begun.front()).bytes != e.bytes) disagree(g, meeting.begun.front(), end, "in size");
    return number;
  }

  size_t new_meeting(Meeting meeting = {}) {
    meetings_.push_back(std::move(meeting));
    return meetings_.size() - 1;
  }

  // Those of its ranks that stand at a wait for it go on; the one that completed it is going anyway.
  void wake(const Meeting& meeting) {
    for (size_t i = 0; i + 1 < meeting.begun.size(); i++) {
      const int rank = meeting.begun[i].rank;
      if (const Meeting* awaited = awaited_by(rank); awaited == &meeting) ready_.push_back(rank);
    }
  }

  // The meeting at whose wait the rank stands.
  const Meeting* awaited_by(int rank) const {
    if (done(rank)) return nullptr;
    const TraceEvent& e = trace(rank)[at_[static_cast<size_t>(rank)]];
    if (e.kind != TraceEvent::Kind::wait) return nullptr;
    const size_t meeting = meeting_of(rank, e.id);
    return meeting == none ? nullptr : &meetings_[meeting];
  }

  void disagree(Group& g, End a, End b, const std::string& where) {
    if (g.disagrees) return;
    g.disagrees = true;
    faults_.push_back(fmt::format("{} and {} disagree {}", describe(a), describe(b), where));
  }

  // The ranks without which the meeting cannot be complete.
  std::vector<int> missing(const Meeting& meeting) const {
    const End some = meeting.begun.front();
    const Group& g = group_of(some);
    if (is_message(event(some))) return {g.members[static_cast<size_t>(event(some).peer)]};
    std::vector<int> ranks = g.members;
    for (End end : meeting.begun) std::erase(ranks, end.rank);
    return ranks;
  }

  void say_who_is_stuck() {
    std::vector<int> stuck;
    for (int rank = 0; rank < mesh_.size(); rank++)
      if (!done(rank)) stuck.push_back(rank);
    if (stuck.empty()) return;
    // From any stuck rank to one that it lacks, as long as there is one that is stuck as well.
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
      const Meeting& meeting = *awaited_by(rank);
      const End mine = *std::find_if(meeting.begun.begin(), meeting.begun.end(), [=](End e) { return e.rank == rank; });
      faults_.push_back(fmt::format("{} is waited for at event {}, but {}", describe(mine),
                                    at_[static_cast<size_t>(rank)], who_has_not(meeting)));
    }
  }

  void say_what_is_left() {
    for (const Meeting& meeting : meetings_)
      if (!meeting.complete)
        faults_.push_back(
            fmt::format("{} is never complete: {}", describe(meeting.begun.front()), who_has_not(meeting)));
  }

  std::string who_has_not(const Meeting& meeting) const {
    const std::vector<int> ranks = missing(meeting);
    const int first = ranks.front();
    return fmt::format("{}{} {}", who(first), ranks.size() > 1 ? fmt::format(" and {} more", ranks.size() - 1) : "",
                       done(first) ? "came to the end without it"
                                   : fmt::format("has not begun it at event {}", at_[static_cast<size_t>(first)]));
  }

  static constexpr size_t none = static_cast<size_t>(-1);
  size_t meeting_of(int rank, int32_t id) const {
    const auto& meetings = meeting_of_[static_cast<size_t>(rank)];
    return 0 <= id && static_cast<size_t>(id) < meetings.size() ? meetings[static_cast<size_t>(id)] : none;
  }
  MeshShape::Place place_of(End end) const {
    return places_[static_cast<size_t>(end.rank)][static_cast<size_t>(event(end).channel)];
  }
  Group& group(size_t channel, MeshShape::Place place) {
    return groups_[channel * traces_.size() + static_cast<size_t>(place.group)];
  }
  const Group& group_of(End end) const {
    return groups_[static_cast<size_t>(event(end).channel) * traces_.size() + static_cast<size_t>(place_of(end).group)];
  }
  std::string who(int rank) const { return mesh_.describe(rank); }

  // "shard of rank 0: all_gather of 64 bytes that rank 1 (shard 1) began at event 4"
  std::string describe(End end) const {
    const TraceEvent& e = event(end);
    std::string with;
    if (e.transfer == Transfer::send) with = fmt::format(" to member {}", e.peer);
    if (e.transfer == Transfer::recv || e.transfer == Transfer::broadcast)
      with = fmt::format(" from member {}", e.peer);
    return fmt::format("{}, group of rank {}: {} of {} bytes{} that {} began at event {}",
                       name_of(static_cast<Channel>(e.channel)),
                       mesh_.place(end.rank, static_cast<Channel>(e.channel)).group, name_of(e.transfer), e.bytes, with,
                       who(end.rank), end.at);
  }

  const MeshShape mesh_;
  const Traces& traces_;
  std::vector<size_t> at_;                       // by rank: the event that comes next
  std::vector<std::vector<size_t>> meeting_of_;  // by rank and number of the transfer
  std::vector<std::array<MeshShape::Place, num_channels>> places_;
  std::vector<Group> groups_;  // by channel and number
  std::deque<Meeting> meetings_;
  std::vector<int> ready_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> match(const MeshShape& mesh, const Traces& traces) {
  CHECK(static_cast<int>(traces.size()) == mesh.size(), "{} traces for a mesh of {} ranks", traces.size(), mesh.size());
  return Play(mesh, traces).run();
}

}  // namespace megalith
