#include "trainer/session/known_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace megalith {

const KnownGroup* KnownRank::group(uint64_t id) const {
  const auto found = std::find_if(groups.begin(), groups.end(), [id](const KnownGroup& g) { return g.id == id; });
  return found == groups.end() ? nullptr : &*found;
}

KnownRank read_page(const RecorderPage& page) {
  const uint32_t now = page.now;
  const auto ago = [now](uint32_t then) { return static_cast<double>(static_cast<int64_t>(now) - then) / 100; };
  KnownRank known{.rank = page.rank, .size = page.size, .step = page.step};
  const size_t length = strnlen(page.machine.data(), page.machine.size());
  const std::string machine(page.machine.data(), length);
  known.where = fmt::format("process {} on {}", page.pid, machine.substr(0, machine.find(' ')));
  for (const RecorderPage::Group& g : page.groups)
    if (const uint64_t id = g.id.load(std::memory_order_acquire))
      known.groups.push_back(
          {id, std::string(g.name.data(), strnlen(g.name.data(), g.name.size())), g.index, g.size, g.begun});
  const int64_t last = page.begun.load(std::memory_order_acquire);
  for (int64_t t = std::max<int64_t>(1, last - static_cast<int64_t>(RecorderPage::num_slots) + 1); t <= last; t++) {
    const RecorderPage::Slot& slot = page.slots[static_cast<size_t>(t) % RecorderPage::num_slots];
    KnownCall c{.group = slot.group,
                .call = slot.call,
                .number = slot.number,
                .bytes = slot.bytes,
                .step = slot.step,
                .peer = slot.peer};
    const uint32_t waits = slot.waits;
    c.begun = ago(slot.begun);
    c.ended = slot.ended != 0;
    if (waits != 0 && !c.ended) c.waits = ago(waits);
    if (slot.ticket.load(std::memory_order_acquire) == t) known.calls.push_back(c);  // else overwritten meanwhile
  }
  return known;
}

const KnownCall* blocked_call(const KnownRank& rank, double least) {
  const KnownCall* longest = nullptr;
  for (const KnownCall& c : rank.calls)
    if (!c.ended && c.waits >= least && (!longest || c.waits > longest->waits)) longest = &c;
  return longest;
}

std::string describe(const KnownRank& rank, const KnownCall& call) {
  const KnownGroup* g = rank.group(call.group);
  const std::string name = g ? g->name : "a group";
  const std::string peer =
      !is_message(call.call) ? "" : fmt::format(" {} {} of", call.call == Transfer::send ? "to" : "from", call.peer);
  const std::string bytes = call.bytes < 0 ? "" : fmt::format("{} bytes, ", call.bytes);
  return fmt::format("{} {}{} {} ({}step {})", name_of(call.call), call.number, peer.empty() ? " of" : peer, name,
                     bytes, call.step);
}

std::string standing(const KnownRank& r, double least) {
  const std::string who = r.step > 0 ? fmt::format("rank {} is on step {}", r.rank, r.step)
                                     : fmt::format("rank {} is before its first step", r.rank);
  if (const KnownCall* c = blocked_call(r, least)) return fmt::format("{}, in {}", who, describe(r, *c));
  if (r.calls.empty()) return who;
  return fmt::format("{}, after {}{}", who, r.calls.back().ended ? "" : "it began ", describe(r, r.calls.back()));
}

}  // namespace megalith
