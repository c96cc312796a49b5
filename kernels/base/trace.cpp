#include "kernels/base/trace.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace megalith {

using Kind = TraceEvent::Kind;

const char* name_of(Transfer transfer) {
  switch (transfer) {
    case Transfer::all_gather: return "all_gather";
    case Transfer::reduce_scatter: return "reduce_scatter";
    case Transfer::all_reduce: return "all_reduce";
    case Transfer::broadcast: return "broadcast";
    case Transfer::send: return "send";
    case Transfer::recv: return "recv";
    default: return "barrier";
  }
}

void Trace::keep(TraceLevel level) {
  level_ = level;
  first_ = next_;
  events_.clear();
}

int64_t Trace::begin(int channel, Transfer transfer, int peer, int64_t bytes) {
  if (level_ != TraceLevel::off)
    events_.push_back({.kind = Kind::begin,
                       .transfer = transfer,
                       .channel = static_cast<int8_t>(channel),
                       .peer = peer,
                       .id = static_cast<int32_t>(next_ - first_),
                       .bytes = bytes});
  return next_++;
}

void Trace::wait(int64_t ticket) {
  if (level_ != TraceLevel::off && ticket >= first_)
    events_.push_back({.kind = Kind::wait, .id = static_cast<int32_t>(ticket - first_)});
}

std::vector<TraceEvent> transfers_on(const std::vector<TraceEvent>& trace, int channel) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& e : trace)
    if (e.kind == Kind::begin && e.channel == channel) found.push_back(e);
  return found;
}

int64_t ops_under(const std::vector<TraceEvent>& trace, int32_t id) {
  const auto is = [id](Kind kind) { return [=](const TraceEvent& e) { return e.kind == kind && e.id == id; }; };
  const auto begin = std::find_if(trace.begin(), trace.end(), is(Kind::begin));
  CHECK(begin != trace.end(), "no transfer {} in a trace of {} events", id, trace.size());
  return std::count_if(begin, std::find_if(begin, trace.end(), is(Kind::wait)),
                       [](const TraceEvent& e) { return e.kind == Kind::op; });
}

}  // namespace megalith
