#include "trainer/doctor/diagnosis.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace megalith {

const char* name_of(Diagnosis::Kind kind) {
  constexpr const char* names[] = {"none",    "died",   "stopped", "unseen",  "another call", "another size",
                                   "skipped", "desync", "left",    "gave up", "busy",         "stuck"};
  return names[static_cast<size_t>(kind)];
}

namespace {

using Kind = Diagnosis::Kind;
using Ranks = std::vector<int>;

bool has(const Ranks& ranks, int rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

std::string named(const Ranks& ranks) {
  constexpr size_t shown = 8;
  const Ranks first(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(shown, ranks.size())));
  const std::string more = ranks.size() > shown ? fmt::format(" and {} more", ranks.size() - shown) : "";
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(first, ", "), more);
}

// Turns "is late" into "are late".
std::string plural(const std::string& predicate) {
  if (predicate.starts_with("is ")) return "are" + predicate.substr(2);
  return predicate.starts_with("has ") ? "have" + predicate.substr(3) : predicate;
}

// Desync: calls with one number in a group that differ between the ranks that make it.

std::vector<const DumpedCall*> calls_of_step(const RankDump& rank, int64_t step) {
  std::vector<const DumpedCall*> calls;
  for (const DumpedCall& c : rank.calls) {
    const DumpedGroup* group = rank.group(c.group);
    if (c.step == step && !(group && group->name == session_group)) calls.push_back(&c);
  }
  return calls;
}

// Compares two calls of one rank.
bool same(const DumpedCall* a, const DumpedCall* b) {
  return a->group == b->group && a->call == b->call && a->peer == b->peer && a->bytes == b->bytes;
}

// Two ranks' calls with the same number can be one transfer if these are equal: call, bytes and root. The counterpart
// of a send is a recv.
using CallShape = std::tuple<Transfer, int64_t, int>;
CallShape shape_of(const DumpedCall& c) {
  if (is_message(c.call)) return {Transfer::send, c.bytes, -1};
  return {c.call, c.bytes, c.peer};
}

using CallOfRank = std::map<int, const DumpedCall*>;

// Returns the earliest calls with one number that have several shapes, or an empty list.
CallOfRank first_mismatch(const std::vector<RankDump>& dumps) {
  using Key = std::tuple<uint64_t, int, int, int64_t>;  // group, from, to, number
  std::map<Key, CallOfRank> calls;
  for (const RankDump& r : dumps)
    for (const DumpedCall& c : r.calls) {
      const DumpedGroup* g = r.group(c.group);
      int from = -1, to = -1;
      if (c.bytes < 0 || (is_message(c.call) && !g)) continue;
      if (is_message(c.call)) from = g->index, to = c.peer;
      if (c.call == Transfer::recv) std::swap(from, to);
      calls[{c.group, from, to, c.number}][r.rank] = &c;
    }
  const CallOfRank* first = nullptr;
  for (const auto& [key, all] : calls) {
    const DumpedCall& a = *all.begin()->second;
    if (std::ranges::all_of(all, [&](const auto& other) { return shape_of(*other.second) == shape_of(a); })) continue;
    const DumpedCall* b = first ? first->begin()->second : nullptr;
    if (!b || std::pair(a.step, -a.begun) < std::pair(b->step, -b->begun)) first = &all;
  }
  return first ? *first : CallOfRank{};
}

// Where a rank's calls of a step deviate from those of its previous step. Calls of the session do not count: they vary
// from step to step.
struct Deviation {
  const DumpedCall* did = nullptr;  // null: the step ended
  const DumpedCall* expected = nullptr;
  bool skipped = false;  // it made the call after the expected one
};
std::optional<Deviation> deviation(const RankDump& rank) {
  if (rank.calls.empty()) return {};
  const bool whole = rank.calls.size() < RecorderPage::num_slots;
  for (const int64_t step : {rank.step - 1, rank.step}) {
    const int64_t before = step - 1;
    if (before < 1 || (!whole && rank.calls.front().step >= before)) continue;
    const auto now = calls_of_step(rank, step), then = calls_of_step(rank, before);
    const auto [a, b] = std::mismatch(now.begin(), now.end(), then.begin(), then.end(), same);
    if (b == then.end()) continue;
    if (a != now.end()) return Deviation{*a, *b, b + 1 != then.end() && same(*a, *(b + 1))};
    if (step < rank.step && !now.empty()) return Deviation{nullptr, *b, true};
  }
  return {};
}

// Returns which of `ranks`, which are out of sync and form `parties`, are at fault: those that deviate from their
// previous step; if that is no rank or every rank, the smallest party if it has less than half; else those that are one
// step ahead. Empty if this does not decide.
Ranks culprits_of(const std::vector<RankDump>& dumps, const Ranks& ranks, const std::vector<Ranks>& parties) {
  const auto of = [&](int rank) -> const RankDump& { return dumps[static_cast<size_t>(rank)]; };
  Ranks found;
  std::ranges::copy_if(ranks, std::back_inserter(found), [&](int r) { return deviation(of(r)).has_value(); });
  if (!found.empty() && found.size() < ranks.size()) return found;
  const auto smallest = std::ranges::min_element(parties, {}, std::ranges::size);
  if (smallest != parties.end() && 2 * smallest->size() < ranks.size()) return *smallest;
  const auto step_of = [&](int r) { return of(r).step; };
  const int64_t ahead = step_of(*std::ranges::max_element(ranks, {}, step_of));
  found.clear();
  std::ranges::copy_if(ranks, std::back_inserter(found), [&](int r) { return step_of(r) == ahead; });
  return found.size() < ranks.size() ? found : Ranks{};
}

class Diagnoser {
 public:
  Diagnoser(const std::vector<RankDump>& dumps, double least) : dumps_(dumps), least_(least) {
    for (const RankDump& r : dumps) {
      blocked_.push_back(r.blocked_call(least));
      if (blocked_.back()) waiting_.push_back(r.rank);
      for (const DumpedGroup& g : r.groups) members_[g.id].push_back(r.rank);
    }
    std::ranges::stable_sort(waiting_, std::greater(), [&](int r) { return blocked(r)->waits; });
  }

  Diagnosis diagnose() const {
    if (const auto calls = first_mismatch(dumps_); !calls.empty()) return mismatch(calls);
    if (const Ranks gave_up = in_state(RankState::gave_up); !gave_up.empty())
      return blame(Kind::gave_up, gave_up, "has given up with an error");
    if (const Ranks dead = in_state(RankState::dead); !dead.empty()) return blame(Kind::died, dead, "has died");
    if (waiting_.empty()) return {};
    if (const Ranks stopped = in_state(RankState::stopped); !stopped.empty())
      return blame(Kind::stopped, stopped, "is stopped, by a signal or a debugger");
    return follow();
  }

 private:
  const RankDump& of(int rank) const { return dumps_[static_cast<size_t>(rank)]; }
  const DumpedCall* blocked(int rank) const { return blocked_[static_cast<size_t>(rank)]; }
  Ranks in_state(RankState state) const {
    Ranks ranks;
    for (const RankDump& r : dumps_)
      if (r.state == state) ranks.push_back(r.rank);
    return ranks;
  }
  const Ranks& members(const DumpedCall& call) const {
    static const Ranks none;
    const auto found = members_.find(call.group);
    return found == members_.end() ? none : found->second;
  }

  // Returns the members that have not reached the call in which `rank` waits.
  Ranks missing(int rank) const {
    Ranks found;
    const DumpedCall& c = *blocked(rank);
    const DumpedGroup* mine = of(rank).group(c.group);
    for (const int m : members(c)) {
      const DumpedGroup& theirs = *of(m).group(c.group);
      if (m == rank) continue;
      const bool awaited = !is_message(c.call) || (mine && theirs.index == c.peer);
      const int64_t come = is_message(c.call) && awaited ? newest_message(m, c, mine->index) : theirs.begun;
      if (awaited && come < c.number) found.push_back(m);
    }
    return found;
  }
  int64_t newest_message(int rank, const DumpedCall& other_end, int peer) const {
    int64_t newest = 0;
    for (const DumpedCall& c : of(rank).calls)
      if (c.group == other_end.group && is_message(c.call) && c.call != other_end.call && c.peer == peer)
        newest = std::max(newest, c.number);
    return newest;
  }
  // Returns the ranks that `rank` waits for: members that have not reached the call; else ranks that have left, which
  // are in no group any more; else members that are in the call and do not wait: some transfers progress only while
  // they do.
  Ranks awaited(int rank) const {
    Ranks found = missing(rank);
    if (!found.empty()) return found;
    const DumpedCall& c = *blocked(rank);
    const DumpedGroup* mine = of(rank).group(c.group);
    if (mine && members(c).size() != static_cast<size_t>(mine->size))
      for (const int r : in_state(RankState::left))
        if (!of(r).group(c.group)) found.push_back(r);
    if (!found.empty() || is_message(c.call)) return found;
    for (const int m : members(c))
      for (const DumpedCall& theirs : of(m).calls)
        if (m != rank && theirs.group == c.group && theirs.number == c.number && !is_message(theirs.call) &&
            !theirs.ended && theirs.waits < 0)
          found.push_back(m);
    return found;
  }

  Diagnosis mismatch(const CallOfRank& calls) const {
    std::map<CallShape, Ranks> by_shape;
    Ranks all;
    for (const auto& [rank, c] : calls) {
      by_shape[shape_of(*c)].push_back(rank);
      all.push_back(rank);
    }
    std::vector<Ranks> parties;
    for (const auto& [shape, ranks] : by_shape) parties.push_back(ranks);
    const Ranks culprits = culprits_of(dumps_, all, parties);
    if (culprits.empty()) return desync(all);
    const int one = culprits.front();
    const DumpedCall& theirs = *calls.at(one);
    const auto other = std::ranges::find_if(
        all, [&](int r) { return !has(culprits, r) && shape_of(*calls.at(r)) != shape_of(theirs); });
    if (other == all.end()) return desync(all);
    const DumpedCall& expected = *calls.at(*other);
    const std::optional<Deviation> why = deviation(of(one));
    const bool skipped = why && why->skipped, same_call = theirs.call == expected.call || is_message(theirs.call);
    const std::string others = all.size() - culprits.size() == 1 ? fmt::format("rank {} is", *other)
                                                                 : std::string("the others of the group are");
    Diagnosis found = blame(skipped     ? Kind::skipped
                            : same_call ? Kind::another_size
                                        : Kind::another_call,
                            culprits,
                            fmt::format("is in {} where {} in {}{}", describe(of(one), theirs), others,
                                        describe(of(*other), expected), in_words(one, why)));
    found.step = theirs.step;
    return found;
  }

  // Follows the ranks that wait to those that they wait for.
  Diagnosis follow() const {
    std::map<int, int> next;  // the first of them that waits itself
    std::set<int> left, busy;
    for (const int r : waiting_)
      for (const int m : awaited(r)) {
        if (blocked(m)) next.emplace(r, m);
        if (of(m).state == RankState::left) left.insert(m);
        if (of(m).state == RankState::running && !blocked(m)) busy.insert(m);
      }
    if (!left.empty()) return blame(Kind::left, {left.begin(), left.end()}, "has left the job in order");
    if (const Ranks cycle = find_cycle(next); !cycle.empty()) return break_cycle(cycle);
    if (!busy.empty())
      return blame(Kind::busy, {busy.begin(), busy.end()},
                   fmt::format("is not waiting for others: {} computing, reading or writing, or slow",
                               busy.size() == 1 ? "it is" : "they are"));
    return all_are_in();
  }

  // Returns ranks each of which waits for the next, and the last for the first.
  Ranks find_cycle(const std::map<int, int>& next) const {
    for (const int start : waiting_) {
      Ranks path{start};
      for (auto to = next.find(start); to != next.end(); to = next.find(path.back())) {
        if (const auto met = std::ranges::find(path, to->second); met != path.end()) return {met, path.end()};
        path.push_back(to->second);
      }
    }
    return {};
  }

  Diagnosis break_cycle(const Ranks& cycle) const {
    // The largest of the groups in which they wait has the clearest majority.
    const int in = *std::ranges::max_element(cycle, {}, [&](int r) { return members(*blocked(r)).size(); });
    const DumpedCall& call = *blocked(in);
    std::set<int> all(cycle.begin(), cycle.end());
    std::vector<Ranks> parties;
    if (!is_message(call.call)) {
      parties = {missing(in), {}};
      for (const int m : members(call))
        if (!has(parties[0], m)) parties[1].push_back(m);
      for (const Ranks& party : parties) all.insert(party.begin(), party.end());
    }
    const Ranks culprits = culprits_of(dumps_, {all.begin(), all.end()}, parties);
    if (culprits.empty()) return desync({all.begin(), all.end()});
    const int one = culprits.front();
    const std::optional<Deviation> why = deviation(of(one));
    Diagnosis found =
        blame(!why || why->skipped ? Kind::skipped : Kind::another_call, culprits,
              fmt::format("is out of sync with its group: it is in {}{}",
                          blocked(one) ? describe(of(one), *blocked(one)) : "no call", in_words(one, why)));
    if (why) found.step = why->did ? why->did->step : of(one).step - 1;
    return found;
  }

  // No known rank is missing.
  Diagnosis all_are_in() const {
    const int first = waiting_.front();
    const DumpedCall& call = *blocked(first);
    const DumpedGroup* g = of(first).group(call.group);
    const Ranks unseen = in_state(RankState::unseen);
    if (g && static_cast<size_t>(g->size) > members(call).size() && !unseen.empty())
      return blame(Kind::unseen, unseen, "does not respond: a process, its node or the connection to it has died");
    return blame(
        Kind::stuck, members(call),
        fmt::format(
            "is in {}, like all of the group, and it does not end: its transport is at fault, a link or a library",
            describe(of(first), call)));
  }

  Diagnosis desync(const Ranks& ranks) const {
    std::string where;
    for (const int r : ranks) {
      const DumpedCall* c = blocked(r) ? blocked(r) : of(r).calls.empty() ? nullptr : &of(r).calls.back();
      if (c) where += fmt::format("{}rank {} in {}", where.empty() ? "" : ", ", r, describe(of(r), *c));
    }
    return blame(Kind::desync, ranks, "is out of sync: " + where);
  }

  std::string in_words(int rank, const std::optional<Deviation>& why) const {
    if (!why) return "";
    const DumpedCall& c = *why->expected;
    const DumpedGroup* g = of(rank).group(c.group);
    const std::string expected = fmt::format("{} of {} ({} bytes)", name_of(c.call), g ? g->name : "a group", c.bytes);
    if (!why->did) return fmt::format("; it has skipped {} in step {}", expected, of(rank).step - 1);
    return why->skipped ? fmt::format("; it has skipped {} and come to {}", expected, describe(of(rank), *why->did))
                        : fmt::format("; by the previous step, {} would come in place of {}", expected,
                                      describe(of(rank), *why->did));
  }

  // Writes the text: who did what, where they are, and who waits for them.
  Diagnosis blame(Kind kind, const Ranks& culprits, const std::string& predicate) const {
    const RankDump& first = of(culprits.front());
    Diagnosis found{.kind = kind, .culprits = culprits, .step = first.step};
    const std::string place = culprits.size() == 1 && !first.where.empty() ? fmt::format(" ({})", first.where) : "";
    found.text = named(culprits) + place + " " + (culprits.size() == 1 ? predicate : plural(predicate));
    if (kind == Kind::stuck || kind == Kind::desync) return found;  // it already names the place
    if (!first.calls.empty()) found.text += "; " + standing(first, least_);
    Ranks waiting;
    std::ranges::copy_if(waiting_, std::back_inserter(waiting), [&](int r) { return !has(culprits, r); });
    if (waiting.empty()) return found;
    const int longest = waiting.front();
    std::ranges::sort(waiting);
    found.text += waiting.size() == 1 ? fmt::format("; rank {} has waited for it for ", longest)
                                      : fmt::format("; {} wait for it, rank {} for ", named(waiting), longest);
    found.text += fmt::format("{:.1f} s in {}", blocked(longest)->waits, describe(of(longest), *blocked(longest)));
    return found;
  }

  const std::vector<RankDump>& dumps_;
  double least_;
  std::vector<const DumpedCall*> blocked_;  // of each rank; null if it does not wait
  Ranks waiting_;                           // those that wait, the longest first
  std::map<uint64_t, Ranks> members_;       // members of each group
};

}  // namespace

Diagnosis diagnose(const std::vector<RankDump>& dumps, double least) { return Diagnoser(dumps, least).diagnose(); }

}  // namespace megalith
