#include "trainer/session/parted_ways.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace megalith {

namespace {

// What a rank did in a step.
std::vector<const KnownCall*> calls_of_step(const KnownRank& rank, int64_t step) {
  std::vector<const KnownCall*> calls;
  for (const KnownCall& c : rank.calls) {
    const KnownGroup* group = rank.group(c.group);
    if (c.step == step && !(group && group->name == session_group)) calls.push_back(&c);
  }
  return calls;
}

// Of two calls of one rank.
bool same(const KnownCall* a, const KnownCall* b) {
  return a->group == b->group && a->call == b->call && a->peer == b->peer && a->bytes == b->bytes;
}

}  // namespace

bool agree(const KnownCall& a, const KnownCall& b) {
  return a.bytes == b.bytes && (is_message(a.call) || (a.call == b.call && a.peer == b.peer));
}

CallsOfRanks first_mismatch(const std::vector<KnownRank>& known) {
  using Key = std::tuple<uint64_t, int, int, int64_t>;  // group, from, to, number
  std::map<Key, CallsOfRanks> calls;
  for (const KnownRank& r : known)
    for (const KnownCall& c : r.calls) {
      if (c.bytes < 0) continue;
      if (!is_message(c.call)) {
        calls[{c.group, -1, -1, c.number}].emplace_back(r.rank, &c);
      } else if (const KnownGroup* g = r.group(c.group)) {
        const bool sends = c.call == Transfer::send;
        calls[{c.group, sends ? g->index : c.peer, sends ? c.peer : g->index, c.number}].emplace_back(r.rank, &c);
      }
    }
  const CallsOfRanks* first = nullptr;
  for (const auto& [key, all] : calls) {
    const KnownCall& a = *all.front().second;
    if (std::all_of(all.begin(), all.end(), [&](const auto& other) { return agree(a, *other.second); })) continue;
    const KnownCall* b = first ? first->front().second : nullptr;
    if (!b || std::pair(a.step, -a.begun) < std::pair(b->step, -b->begun)) first = &all;
  }
  return first ? *first : CallsOfRanks{};
}

std::optional<Deviation> deviation(const KnownRank& rank) {
  if (rank.calls.empty()) return {};
  const bool whole = rank.calls.size() < RecorderPage::num_slots;
  for (const int64_t step : {rank.step - 1, rank.step}) {
    const int64_t before = step - 1;
    if (before < 1 || (!whole && rank.calls.front().step >= before)) continue;
    const auto now = calls_of_step(rank, step), then = calls_of_step(rank, before);
    const auto [a, b] = std::mismatch(now.begin(), now.end(), then.begin(), then.end(), same);
    if (b == then.end()) continue;
    if (a == now.end()) {
      if (step < rank.step && !now.empty()) return Deviation{nullptr, *b, true};
      continue;
    }
    return Deviation{*a, *b, b + 1 != then.end() && same(*a, *(b + 1))};
  }
  return {};
}

std::vector<int> who_left(const std::vector<KnownRank>& known, const std::vector<int>& ranks,
                          const std::vector<std::vector<int>>& parties) {
  const auto of = [&](int rank) -> const KnownRank& { return known[static_cast<size_t>(rank)]; };
  std::vector<int> deviating;
  for (const int r : ranks)
    if (deviation(of(r))) deviating.push_back(r);
  if (!deviating.empty() && deviating.size() < ranks.size()) return deviating;
  const auto smallest = std::min_element(parties.begin(), parties.end(),
                                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (smallest != parties.end() && 2 * smallest->size() < ranks.size()) return *smallest;
  const auto [first, last] =
      std::minmax_element(ranks.begin(), ranks.end(), [&](int a, int b) { return of(a).step < of(b).step; });
  std::vector<int> ahead;
  for (const int r : ranks)
    if (of(r).step == of(*last).step && of(*first).step < of(*last).step) ahead.push_back(r);
  return ahead;
}

}  // namespace megalith
