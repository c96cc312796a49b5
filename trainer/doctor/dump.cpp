#include "trainer/doctor/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace megalith {

const DumpedGroup* RankDump::group(uint64_t id) const {
  const auto found = std::ranges::find(groups, id, &DumpedGroup::id);
  return found == groups.end() ? nullptr : &*found;
}

const DumpedCall* RankDump::blocked_call(double least) const {
  const DumpedCall* longest = nullptr;
  for (const DumpedCall& c : calls)
    if (!c.ended && c.waits >= least && (!longest || c.waits > longest->waits)) longest = &c;
  return longest;
}

namespace {

template <size_t N>
std::string text_of(const std::array<char, N>& chars) {
  return {chars.data(), strnlen(chars.data(), N)};
}

}  // namespace

RankDump read_page(const RecorderPage& page) {
  const uint32_t now = page.now;
  const auto ago = [now](uint32_t then) { return static_cast<double>(static_cast<int64_t>(now) - then) / 100; };
  RankDump dump{.rank = page.rank, .state = page.seen_state, .step = page.step};
  const std::string machine = text_of(page.machine);
  dump.where = fmt::format("process {} on {}", page.pid, machine.substr(0, machine.find(' ')));
  for (const RecorderPage::Group& g : page.groups)
    if (const uint64_t id = g.id.load(std::memory_order_acquire))
      dump.groups.push_back({id, text_of(g.name), g.index, g.size, g.begun});
  const int64_t last = page.begun.load(std::memory_order_acquire);
  for (int64_t t = RecorderPage::oldest(last); t <= last; t++) {
    const RecorderPage::Slot& slot = page.slot(t);
    DumpedCall c{slot.group, slot.call, slot.number, slot.bytes, slot.step, slot.peer};
    const uint32_t waits = slot.waits;
    c.begun = ago(slot.begun);
    c.ended = slot.ended != 0;
    if (waits != 0 && !c.ended) c.waits = ago(waits);
    if (slot.ticket.load(std::memory_order_acquire) == t)
      dump.calls.push_back(c);  // otherwise it was overwritten during the copy
  }
  return dump;
}

std::string describe(const RankDump& rank, const DumpedCall& call) {
  const DumpedGroup* g = rank.group(call.group);
  const std::string peer =
      is_message(call.call) ? fmt::format("{} {} ", call.call == Transfer::send ? "to" : "from", call.peer) : "";
  const std::string bytes = call.bytes < 0 ? "" : fmt::format("{} bytes, ", call.bytes);
  return fmt::format("{} {} {}of {} ({}step {})", name_of(call.call), call.number, peer, g ? g->name : "a group", bytes,
                     call.step);
}

std::string standing(const RankDump& rank, double least) {
  const std::string who = rank.step > 0 ? fmt::format("rank {} is on step {}", rank.rank, rank.step)
                                        : fmt::format("rank {} has not begun its first step", rank.rank);
  if (const DumpedCall* c = rank.blocked_call(least)) return fmt::format("{}, in {}", who, describe(rank, *c));
  if (rank.calls.empty()) return who;
  const DumpedCall& last = rank.calls.back();
  return fmt::format("{}, after {}{}", who, last.ended ? "" : "it began ", describe(rank, last));
}

}  // namespace megalith
