#include "trainer/session/hang.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "trainer/session/parted_ways.h"

namespace megalith {

const char* name_of(Hang::Kind kind) {
  constexpr const char* names[] = {"none",    "died",   "stopped", "unseen",  "another call", "another size",
                                   "skipped", "parted", "left",    "gave up", "busy",         "stuck"};
  return names[static_cast<size_t>(kind)];
}

namespace {

using Ranks = std::vector<int>;

bool has(const Ranks& ranks, int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

std::string named(const Ranks& ranks) {
  constexpr size_t shown = 8;
  const Ranks first(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(shown, ranks.size())));
  const std::string more = ranks.size() > shown ? fmt::format(" and {} more", ranks.size() - shown) : "";
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(first, ", "), more);
}

std::string with_place(const KnownRank& rank) {
  return rank.where.empty() ? fmt::format("rank {}", rank.rank) : fmt::format("rank {} ({})", rank.rank, rank.where);
}

class Judge {
 public:
  Judge(const std::vector<KnownRank>& known, double least) : known_(known), least_(least) {
    for (const KnownRank& r : known)
      for (const KnownGroup& g : r.groups) {
        members_[g.id].push_back(r.rank);
        if (g.name == session_group) session_ = g.id;
      }
  }

  Hang judge() const {
    if (const CallsOfRanks calls = first_mismatch(known_); !calls.empty()) return judge_mismatch(calls);
    if (const Ranks gave_up = in_state(RankState::gave_up); !gave_up.empty())
      return blame(Hang::Kind::gave_up, gave_up, "has given up, with an error of its own",
                   "have given up, with errors of their own");
    if (const Ranks dead = in_state(RankState::dead); !dead.empty())
      return blame(Hang::Kind::died, dead, "has died", "have died");
    Ranks waiting;
    for (const KnownRank& r : known_)
      if (blocked(r.rank)) waiting.push_back(r.rank);
    if (waiting.empty()) return {};
    std::stable_sort(waiting.begin(), waiting.end(),
                     [&](int a, int b) { return blocked(a)->waits > blocked(b)->waits; });
    if (const Ranks stopped = in_state(RankState::stopped); !stopped.empty())
      return blame(Hang::Kind::stopped, stopped, "is stopped, by a signal or a debugger",
                   "are stopped, by a signal or a debugger");
    return follow(waiting);
  }

 private:
  const KnownRank& of(int rank) const { return known_[static_cast<size_t>(rank)]; }
  Ranks in_state(RankState state) const {
    Ranks ranks;
    for (const KnownRank& r : known_)
      if (r.state == state) ranks.push_back(r.rank);
    return ranks;
  }
  const KnownGroup* group(int rank, uint64_t id) const { return of(rank).group(id); }
  const Ranks& members(uint64_t id) const {
    static const Ranks none;
    const auto found = members_.find(id);
    return found == members_.end() ? none : found->second;
  }
  const KnownCall* blocked(int rank) const { return blocked_call(of(rank), least_); }
  const KnownCall* call_at(int rank, uint64_t id, int64_t number) const {
    for (const KnownCall& c : of(rank).calls)
      if (c.group == id && c.number == number && !is_message(c.call)) return &c;
    return nullptr;
  }

  // Members that have not come to the call in which `rank` waits.
  Ranks missing(int rank, const KnownCall& c) const {
    Ranks found;
    const KnownGroup* mine = group(rank, c.group);
    for (const int m : members(c.group)) {
      const KnownGroup& theirs = *group(m, c.group);
      if (m == rank) continue;
      if (!is_message(c.call)) {
        if (theirs.begun < c.number) found.push_back(m);
      } else if (mine && theirs.index == c.peer && newest_message(m, c, mine->index) < c.number) {
        found.push_back(m);
      }
    }
    return found;
  }
  int64_t newest_message(int rank, const KnownCall& other_end, int peer) const {
    int64_t newest = 0;
    for (const KnownCall& c : of(rank).calls)
      if (c.group == other_end.group && is_message(c.call) && c.call != other_end.call && c.peer == peer)
        newest = std::max(newest, c.number);
    return newest;
  }
  // A rank that has gone has no groups any more.
  Ranks gone(int rank, const KnownCall& c) const {
    Ranks found;
    const KnownGroup* mine = group(rank, c.group);
    if (!mine || members(c.group).size() == static_cast<size_t>(mine->size)) return found;
    for (const KnownRank& r : known_)
      if (r.state == RankState::left && !group(r.rank, c.group)) found.push_back(r.rank);
    return found;
  }
  // Those that have come to it, are not through with it and do not wait: some transfers move only while they do.
  Ranks not_waiting(int rank, const KnownCall& c) const {
    Ranks found;
    for (const int m : members(c.group)) {
      const KnownCall* theirs = m == rank || is_message(c.call) ? nullptr : call_at(m, c.group, c.number);
      if (theirs && !theirs->ended && theirs->waits < 0) found.push_back(m);
    }
    return found;
  }

  // Of calls of one number that do not agree.
  Hang judge_mismatch(const CallsOfRanks& calls) const {
    std::map<std::tuple<Transfer, int64_t, int>, Ranks> sides;
    std::map<int, const KnownCall*> call_of_rank;
    Ranks all;
    for (const auto& [rank, c] : calls) {
      const bool message = is_message(c->call);
      sides[{message ? Transfer::send : c->call, c->bytes, message ? -1 : c->peer}].push_back(rank);
      call_of_rank[rank] = c;
      all.push_back(rank);
    }
    std::vector<Ranks> parties;
    for (const auto& [key, ranks] : sides) parties.push_back(ranks);
    const Ranks guilty = who_left(known_, all, parties);
    const auto of_others = std::find_if(all.begin(), all.end(), [&](int r) {
      return !has(guilty, r) && (guilty.empty() || !agree(*call_of_rank[r], *call_of_rank[guilty.front()]));
    });
    if (guilty.empty() || of_others == all.end()) return parted(all);
    const KnownCall &theirs = *call_of_rank[guilty.front()], &expected = *call_of_rank[*of_others];
    const std::optional<Deviation> why = deviation(of(guilty.front()));
    const auto kind = why && why->skipped                                       ? Hang::Kind::skipped
                      : theirs.call == expected.call || is_message(theirs.call) ? Hang::Kind::another_size
                                                                                : Hang::Kind::another_call;
    const std::string what = fmt::format(
        "{} where {} in {}{}", describe(of(guilty.front()), theirs),
        all.size() - guilty.size() == 1 ? fmt::format("rank {} is", *of_others) : "the others of the group are",
        describe(of(*of_others), expected),
        kind == Hang::Kind::skipped ? fmt::format("; it has skipped {}", describe_kind(guilty.front(), *why->expected))
                                    : "");
    Hang hang = blame(kind, guilty, "is in " + what, "are in " + what);
    hang.step = theirs.step;
    return hang;
  }

  Hang follow(const Ranks& waiting) const {
    std::map<int, Ranks> ahead;  // of each rank that waits, those that it waits for
    Ranks left, busy;
    const auto note = [](Ranks& list, int r) {
      if (!has(list, r)) list.push_back(r);
    };
    for (const int r : waiting) {
      const KnownCall& c = *blocked(r);
      Ranks to = missing(r, c);
      if (to.empty()) to = gone(r, c);
      if (to.empty()) to = not_waiting(r, c);
      for (const int m : to) {
        if (of(m).state == RankState::left) note(left, m);
        if (of(m).state == RankState::running && !blocked(m)) note(busy, m);
      }
      ahead[r] = to;
    }
    if (!left.empty()) return blame(Hang::Kind::left, left, "has left the job, its work done", "have left the job");
    if (const Ranks circle = find_circle(waiting, ahead); !circle.empty()) return judge_circle(circle);
    std::sort(busy.begin(), busy.end());
    if (!busy.empty()) {
      const std::string doing = fmt::format("{} not waiting for others: {} computing, reading or writing, or slow",
                                            busy.size() == 1 ? "is" : "are", busy.size() == 1 ? "it is" : "they are");
      return blame(Hang::Kind::busy, busy, doing, doing);
    }
    return judge_rest(waiting);
  }

  // Ranks each of which waits for the next, and the last for the first.
  static Ranks find_circle(const Ranks& waiting, const std::map<int, Ranks>& ahead) {
    for (const int start : waiting) {
      Ranks path{start};
      while (true) {
        const auto to = ahead.find(path.back());
        const auto next = to == ahead.end() ? Ranks::const_iterator{}
                                            : std::find_if(to->second.begin(), to->second.end(),
                                                           [&](int r) { return ahead.contains(r); });
        if (to == ahead.end() || next == to->second.end()) break;
        if (const auto met = std::find(path.begin(), path.end(), *next); met != path.end()) return {met, path.end()};
        path.push_back(*next);
      }
    }
    return {};
  }

  Hang judge_circle(const Ranks& circle) const {
    // Of the groups in which they wait, the largest has the clearest majority.
    int in = circle.front();
    for (const int r : circle)
      if (members(blocked(r)->group).size() > members(blocked(in)->group).size()) in = r;
    const KnownCall& call = *blocked(in);
    const Ranks behind = missing(in, call);
    Ranks there;
    for (const int m : members(call.group))
      if (!has(behind, m)) there.push_back(m);
    std::set<int> all(circle.begin(), circle.end());
    if (!is_message(call.call)) {
      all.insert(behind.begin(), behind.end());
      all.insert(there.begin(), there.end());
    }
    const Ranks guilty = who_left(known_, {all.begin(), all.end()},
                                  is_message(call.call) ? std::vector<Ranks>{} : std::vector<Ranks>{behind, there});
    if (guilty.empty()) return parted({all.begin(), all.end()});
    const int one = guilty.front();
    const std::optional<Deviation> why = deviation(of(one));
    const bool skipped = !why || why->skipped;
    std::string what;
    if (why && why->did)
      what = fmt::format("{} {} where, by the step before, {} would come",
                         skipped ? "has skipped a call and come to" : "has come to", describe(of(one), *why->did),
                         describe_kind(one, *why->expected));
    else if (why)
      what = fmt::format("has skipped a call: {} of step {} did not come", describe_kind(one, *why->expected),
                         of(one).step - 1);
    else
      what = fmt::format("has parted ways with its group: it is in {}",
                         blocked(one) ? describe(of(one), *blocked(one)) : "no call");
    Hang hang = blame(skipped ? Hang::Kind::skipped : Hang::Kind::another_call, guilty, what, what);
    hang.step = why && why->did ? why->did->step : why ? of(one).step - 1 : of(one).step;
    return hang;
  }

  // Nobody is missing who is known.
  Hang judge_rest(const Ranks& waiting) const {
    const KnownCall& call = *blocked(waiting.front());
    const KnownGroup* g = group(waiting.front(), call.group);
    const Ranks unseen = in_state(RankState::unseen);
    if (g && static_cast<size_t>(g->size) > members(call.group).size() && !unseen.empty())
      return blame(Hang::Kind::unseen, unseen, "has not been heard of: it, its node or the way to it has died",
                   "have not been heard of: they, their nodes or the way to them have died");
    const std::string what =
        fmt::format("in {}, as all of the group, and it does not end: what carries it is at fault, a link or a library",
                    describe(of(waiting.front()), call));
    return blame(Hang::Kind::stuck, members(call.group), "is " + what, "are " + what);
  }

  Hang parted(const Ranks& ranks) const {
    std::string where;
    for (const int r : ranks) {
      const KnownCall* c = blocked(r) ? blocked(r) : of(r).calls.empty() ? nullptr : &of(r).calls.back();
      if (c) where += fmt::format("{}rank {} in {}", where.empty() ? "" : ", ", r, describe(of(r), *c));
    }
    return blame(Hang::Kind::parted, ranks, "", "have parted ways: " + where);
  }

  std::string describe_kind(int rank, const KnownCall& c) const {
    const KnownGroup* g = group(rank, c.group);
    return fmt::format("{} of {} ({} bytes)", name_of(c.call), g ? g->name : "a group", c.bytes);
  }

  // Of where ranks stand and who waits for them.
  Hang blame(Hang::Kind kind, const Ranks& ranks, const std::string& one, const std::string& several) const {
    const KnownRank& first = of(ranks.front());
    Hang hang{.kind = kind, .ranks = ranks, .step = first.step};
    hang.text =
        ranks.size() == 1 ? fmt::format("{} {}", with_place(first), one) : fmt::format("{} {}", named(ranks), several);
    const bool told = kind == Hang::Kind::stuck || kind == Hang::Kind::parted;  // where they stand
    if (!told && !first.calls.empty()) hang.text += "; " + standing(first, least_);
    Ranks waiting;
    for (const KnownRank& r : known_)
      if (blocked(r.rank) && !has(ranks, r.rank)) waiting.push_back(r.rank);
    hang.outside = true;
    const KnownCall* longest = nullptr;
    const KnownRank* whose = nullptr;
    for (const KnownRank& r : known_) {
      const KnownCall* c = blocked(r.rank);
      if (!c) continue;
      hang.outside = hang.outside && c->group == session_;
      if (!has(ranks, r.rank) && (!longest || c->waits > longest->waits)) longest = c, whose = &r;
    }
    if (longest && !told)
      hang.text += waiting.size() == 1 ? fmt::format("; rank {} has waited for it for {:.1f} s in {}", whose->rank,
                                                     longest->waits, describe(*whose, *longest))
                                       : fmt::format("; {} wait for it, rank {} for {:.1f} s in {}", named(waiting),
                                                     whose->rank, longest->waits, describe(*whose, *longest));
    return hang;
  }
  const std::vector<KnownRank>& known_;
  double least_;
  std::map<uint64_t, Ranks> members_;
  uint64_t session_ = 0;
};

}  // namespace

Hang diagnose(const std::vector<KnownRank>& known, double least) { return Judge(known, least).judge(); }

}  // namespace megalith
