// What is known of a rank of a job: how its process is, and what its page of calls (kernels/base/flight_recorder.h)
// says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/flight_recorder.h"

namespace megalith {

struct KnownCall {
  uint64_t group = 0;
  Transfer call{};
  int64_t number = 0, bytes = 0, step = 0;
  int peer = -1;
  double begun = 0;   // seconds ago
  double waits = -1;  // seconds; < 0: nobody waits for it, or it has ended
  bool ended = false;
};

struct KnownGroup {
  uint64_t id = 0;
  std::string name;
  int index = 0, size = 1;
  int64_t begun = 0;  // collectives
};

struct KnownRank {
  int rank = 0, size = 1;
  RankState state = RankState::unseen;
  std::string where = {};  // "process 4711 on host"
  int64_t step = 0;
  std::vector<KnownGroup> groups = {};
  std::vector<KnownCall> calls = {};  // the last, in order

  const KnownGroup* group(uint64_t id) const;  // null: it is not in that group, or no more
};

// The name of the group of the session (session.h), whose calls are outside of steps.
constexpr const char* session_group = "session";

// What a page says; the state is left to whoever can see the process.
KnownRank read_page(const RecorderPage& page);

// The call in which it waits for the longest time, of `least` seconds or more; null where it does not.
const KnownCall* blocked_call(const KnownRank& rank, double least);

// "all_reduce 12 of data (4096 bytes, step 7)"
std::string describe(const KnownRank& rank, const KnownCall& call);
// "rank 2 is on step 7, after all_reduce 12 of data (4096 bytes, step 7)"
std::string standing(const KnownRank& rank, double least);

}  // namespace megalith
