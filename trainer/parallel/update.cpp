#include "trainer/parallel/update.h"

#include <algorithm>

namespace megalith {

namespace {

using Op = Instruction::Op;

// A part of a unit on the host.
struct HostPart {
  size_t unit;
  Interval part;
};

// A unit that is larger than a layer, such as the token table, passes in several parts.
std::vector<HostPart> parts_on_host(const std::vector<UnitPlan>& units) {
  int64_t layer = 0, largest = 0;
  for (const UnitPlan& unit : units) {
    if (unit.frozen || !unit.optimizer_on_host) continue;
    largest = std::max(largest, unit.shard.size());
    if (unit.is_layer) layer = unit.shard.size();
  }
  const int64_t size = layer > 0 ? layer : largest;
  std::vector<HostPart> parts;
  for (size_t u = 0; u < units.size(); u++)
    for (int64_t at = 0; units[u].optimizer_on_host && !units[u].frozen && at < units[u].shard.size(); at += size)
      parts.push_back({u, {at, std::min(at + size, units[u].shard.size())}});
  return parts;
}

}  // namespace

bool is_of_update(Op op) { return op >= Op::norm; }

void list_update(const Plan& plan, Program& list) {
  const std::vector<HostPart> parts = parts_on_host(plan.units);
  const size_t buffers = std::min<size_t>(2, parts.size());
  const auto of_part = [&](Op op, size_t p) {
    list.push_back({.op = op, .unit = as_number(parts[p].unit), .slot = as_number(p % buffers), .part = parts[p].part});
  };
  for (size_t u = 0; u < plan.units.size(); u++)
    if (plan.trains(u)) list.push_back({.op = Op::norm, .unit = as_number(u)});
  list.push_back({.op = Op::sum_norms});
  list.push_back({.op = Op::decide});
  if (!parts.empty()) of_part(Op::fetch_state, 0);
  size_t next = 0;
  for (size_t u = 0; u < plan.units.size(); u++) {
    if (plan.trains(u) && !plan.units[u].optimizer_on_host)
      list.push_back({.op = Op::update, .unit = as_number(u), .part = {0, plan.units[u].shard.size()}});
    for (; next < parts.size() && parts[next].unit == u; next++) {
      // Copies keep their order, so a fetch may follow what is put back from the same buffer.
      if (next + 1 < parts.size()) of_part(Op::fetch_state, next + 1);
      list.push_back({.op = Op::await_state, .slot = as_number(next % buffers)});
      of_part(Op::update, next);
      of_part(Op::put_state, next);
    }
  }
  for (size_t buffer = 0; buffer < buffers; buffer++)
    list.push_back({.op = Op::await_state, .slot = as_number(buffer)});
}

}  // namespace megalith
