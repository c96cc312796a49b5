// A dump is a copy of the page of a rank's flight recorder (kernels/stream/flight_recorder.h), with the state of the
// rank's process at that time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/stream/flight_recorder.h"

namespace megalith {

struct DumpedCall {
  uint64_t group = 0;
  Transfer call{};
  int64_t number = 0, bytes = 0, step = 0;
  int peer = -1;
  double begun = 0;   // seconds ago
  double waits = -1;  // seconds; < 0: not awaited, or over
  bool ended = false;
};

struct DumpedGroup {
  uint64_t id = 0;
  std::string name;
  int index = 0, size = 1;
  int64_t begun = 0;  // collectives begun
};

struct RankDump {
  int rank = 0;
  RankState state = RankState::unseen;
  std::string where = {};  // "process 4711 on host"
  int64_t step = 0;
  std::vector<DumpedGroup> groups = {};
  std::vector<DumpedCall> calls = {};  // the last ones, in order

  const DumpedGroup* group(uint64_t id) const;  // null: it is not in that group, or no longer
  // Returns the call in which it has waited longest, if that is at least `least` seconds; else null.
  const DumpedCall* blocked_call(double least) const;
};

// The name of the session's group (session.h), whose calls are outside of steps.
constexpr const char* session_group = "session";

RankDump read_page(const RecorderPage& page);

// Example: "all_reduce 12 of data (4096 bytes, step 7)"
std::string describe(const RankDump& rank, const DumpedCall& call);
// Example: "rank 2 is on step 7, after all_reduce 12 of data (4096 bytes, step 7)"
std::string standing(const RankDump& rank, double least);

}  // namespace megalith
