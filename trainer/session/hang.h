// Who is to blame when ranks wait for one another and nothing goes on: a pure function of what all of them remember of
// their calls (kernels/base/call_ring.h) and of how their processes are.
//
// In this order: members of a group whose calls of one number are not the same call, of which some die, for what comes
// does not fit; a rank that has died; one that is stopped; then, from each rank that waits, to those that have not come
// to its call, and on from these if they wait themselves. That ends at one that is between calls (it computes, or is
// slow), has left or has given up; at a call that all are in, so that only what carries it can be at fault; or in a
// circle, where ranks have parted ways. Of ranks that have parted ways the one is blamed whose calls of this step are
// not those of its step before; if that is none or all, the smaller part of the group; if there is no smaller part, one
// that is a step ahead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/call_ring.h"

namespace megalith {

enum class RankState : uint8_t {
  unseen,   // nothing is known of it
  running,  //
  stopped,  // by a signal or a debugger
  dead,     // the process is gone
  left,     // in order
  gave_up,  // with an error of its own
};

struct KnownCall {
  uint64_t group = 0;
  Call call{};
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
};

struct Hang {
  enum class Kind : uint8_t {
    none,          // nobody waits
    died,          //
    stopped,       //
    unseen,        //
    another_call,  // it calls something else than its group
    another_size,  // the same call, of other bytes
    skipped,       // it has left out a call
    parted,        // ranks have parted ways, and nobody can say who is to blame
    left,          // in order, while others wait for it
    gave_up,       //
    busy,          // it is between calls: computes, reads, writes, or is slow
    stuck,         // all are in the call
  };
  Kind kind = Kind::none;
  std::vector<int> ranks = {};  // to blame
  int64_t step = 0;             // that these are on
  std::string text = {};        // a sentence that names them, the call and the step
  bool outside = false;         // who waits waits in the session, outside of steps, which nothing bounds

  // Whether the job cannot go on: it need not wait until the time is up.
  bool hopeless() const { return kind == Kind::died; }
};
const char* name_of(Hang::Kind kind);

// `known`: of rank 0, 1, ... of the job. The group that is named "session" is that of the session. Calls that have been
// waited for less than `least` seconds count as going on.
Hang diagnose(const std::vector<KnownRank>& known, double least);

// "all_reduce 12 of data (4096 bytes, step 7)"
std::string describe(const KnownRank& rank, const KnownCall& call);

// The call in which it waits for the longest time, of `least` seconds or more; null where it does not.
const KnownCall* blocked_call(const KnownRank& rank, double least);
// "rank 2 is on step 7, after all_reduce 12 of data (4096 bytes, step 7)"
std::string standing(const KnownRank& rank, double least);

constexpr const char* session_group = "session";

// What a page says.
KnownRank read_page(const CallPage& page);

}  // namespace megalith
