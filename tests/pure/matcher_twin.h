// The matcher's question answered in another way, for its tests: ranks wait in vain exactly if "comes before" runs in a
// circle, each event before the next one of its rank, and the begin of every partner before a wait.
#pragma once

#include "trainer/communication/mesh_shape.h"
#include "trainer/planner/matcher.h"

namespace megalith {

struct Job {
  MeshShape mesh;
  Traces traces;
};

bool is_message(const TraceEvent& e);
bool same_call(const TraceEvent& a, const TraceEvent& b);

// Whether every rank comes to the end of its trace.
bool drains(const Job& job);

}  // namespace megalith
