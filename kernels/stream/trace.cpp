#include "kernels/stream/trace.h"

#include <iterator>

namespace megalith {

using Kind = TraceEvent::Kind;

const char* name_of(Transfer transfer) {
  constexpr const char* names[] = {
      "all_gather",    "reduce_scatter",   "all_reduce",         "all_to_all",     "broadcast", "send", "recv",
      "barrier",       "to_host",          "to_device",                             //
      "split",         "connect",          "texts of all ranks", "text of rank 0",  //
      "all_gather_of", "reduce_scatter_to"};
  const auto i = static_cast<size_t>(transfer);
  return i < std::size(names) ? names[i] : "a call of another version";
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
  if (timekeeper_) timekeeper_->begin_transfer(next_, channel, transfer);
  return next_++;
}

void Trace::wait(int64_t ticket) {
  if (level_ != TraceLevel::off && ticket >= first_)
    events_.push_back({.kind = Kind::wait, .id = static_cast<int32_t>(ticket - first_)});
  if (timekeeper_) timekeeper_->begin_wait(ticket);
}

std::vector<TraceEvent> transfers_on(const std::vector<TraceEvent>& trace, int channel) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& e : trace)
    if (e.kind == Kind::begin && e.channel == channel) found.push_back(e);
  return found;
}

}  // namespace megalith
