// How well a trace hides its transfers.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/stream/trace.h"
#include "kernels/system/check.h"

namespace megalith {

// How many ops were launched while transfer `id` was under way: between its begin and its wait, or the end of the trace
// where nobody waits. That is the work that hides it. The trace must be of everything.
inline int64_t ops_under(const std::vector<TraceEvent>& trace, int32_t id) {
  const auto is = [id](TraceEvent::Kind kind) {
    return [=](const TraceEvent& e) { return e.kind == kind && e.id == id; };
  };
  const auto begin = std::find_if(trace.begin(), trace.end(), is(TraceEvent::Kind::begin));
  CHECK(begin != trace.end(), "no transfer {} in a trace of {} events", id, trace.size());
  return std::count_if(begin, std::find_if(begin, trace.end(), is(TraceEvent::Kind::wait)),
                       [](const TraceEvent& e) { return e.kind == TraceEvent::Kind::op; });
}

}  // namespace megalith
