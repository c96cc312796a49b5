#include "trainer/plan/matcher.h"

#include <deque>
#include <map>

namespace megalith {

namespace {

bool is_message(const TraceEvent& r) { return r.transfer == Transfer::send || r.transfer == Transfer::recv; }

std::string describe(const TraceEvent& r) {
  return fmt::format("{} of {} bytes{}", name_of(r.transfer), r.bytes,
                     r.peer >= 0 ? fmt::format(" with member {}", r.peer) : std::string());
}

// One group: its members' logs, played until nobody can go on. A send completes at once (mail waits); a collective when
// all members stand at it; a recv when its mail is there.
class Group {
 public:
  Group(std::string name, Traces logs) : name_(std::move(name)), logs_(std::move(logs)), at_(logs_.size(), 0) {}

  std::vector<std::string> play() {
    while (messages() || collective()) {
    }
    for (size_t m = 0; m < logs_.size(); m++)
      if (at_[m] < logs_[m].size())
        faults_.push_back(fmt::format("{}: member {} waits at its call {}: {}; {}", name_, m, at_[m],
                                      describe(logs_[m][at_[m]]), others(m)));
    for (const auto& [route, mail] : mail_)
      if (!mail.empty())
        faults_.push_back(
            fmt::format("{}: member {} sent member {} {} messages that nobody reads, the first of {} bytes", name_,
                        route.first, route.second, mail.size(), mail.front()));
    return std::move(faults_);
  }

 private:
  bool done(size_t m) const { return at_[m] == logs_[m].size(); }
  const TraceEvent& now(size_t m) const { return logs_[m][at_[m]]; }

  bool messages() {
    bool moved = false;
    for (size_t m = 0; m < logs_.size(); m++)
      while (!done(m) && is_message(now(m))) {
        const TraceEvent& r = now(m);
        const auto peer = static_cast<size_t>(r.peer);
        if (r.transfer == Transfer::send) {
          mail_[{m, peer}].push_back(r.bytes);
        } else {
          auto& mail = mail_[{peer, m}];
          if (mail.empty()) break;
          if (mail.front() != r.bytes)
            faults_.push_back(fmt::format("{}: member {} expects {} bytes from member {}, which sent {}", name_, m,
                                          r.bytes, peer, mail.front()));
          mail.pop_front();
        }
        at_[m]++;
        moved = true;
      }
    return moved;
  }

  bool collective() {
    for (size_t m = 0; m < logs_.size(); m++)
      if (done(m) || is_message(now(m))) return false;
    const TraceEvent& first = now(0);
    for (size_t m = 1; m < logs_.size(); m++) {
      const TraceEvent& r = now(m);
      if (r.transfer != first.transfer || r.bytes != first.bytes || r.peer != first.peer) {
        faults_.push_back(fmt::format("{}: at call {} member 0 makes {}, at call {} member {} makes {}", name_, at_[0],
                                      describe(first), at_[m], m, describe(r)));
        return false;
      }
    }
    for (size_t& position : at_) position++;
    return true;
  }

  std::string others(size_t m) const {
    std::string text;
    for (size_t o = 0; o < logs_.size() && text.size() < 160; o++)
      if (o != m)
        text += fmt::format("{}member {} is {}", text.empty() ? "" : ", ", o,
                            done(o) ? "done" : fmt::format("at call {}", at_[o]));
    return text;
  }

  std::string name_;
  Traces logs_;
  std::vector<size_t> at_;
  std::map<std::pair<size_t, size_t>, std::deque<int64_t>> mail_;  // (from, to): bytes of each message under way
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> match(const MeshShape& mesh, const Traces& traces) {
  CHECK(static_cast<int>(traces.size()) == mesh.size(), "{} traces for a mesh of {} ranks", traces.size(), mesh.size());
  std::vector<std::string> faults;
  for (Channel channel : all_channels) {
    if (mesh.place(0, channel).size == 1) continue;
    std::map<int, Traces> groups;
    for (int rank = 0; rank < mesh.size(); rank++) {
      const MeshShape::Place place = mesh.place(rank, channel);
      auto& logs = groups[place.group];
      logs.resize(static_cast<size_t>(place.size));
      logs[static_cast<size_t>(place.index)] =
          transfers_on(traces[static_cast<size_t>(rank)], static_cast<int>(channel));
    }
    for (auto& [first_rank, logs] : groups)
      for (std::string& fault :
           Group(fmt::format("{}, group of rank {}", name_of(channel), first_rank), std::move(logs)).play())
        faults.push_back(std::move(fault));
  }
  return faults;
}

}  // namespace megalith
