// Who is to blame when ranks wait for one another and nothing goes on: a pure function of what all of them remember of
// their calls (known_rank.h) and of how their processes are.
//
// In this order: members of a group whose calls of one number are not the same call, of which some die, for what comes
// does not fit; a rank that has given up, for whoever started the ranks may have ended others since; one that has died;
// one that is stopped; then, from each rank that waits, to those that have not come to its call, and on from these if
// they wait themselves. That ends at one that is between calls (it computes, or is slow) or has left; at a call that
// all are in, so that only what carries it can be at fault; or in a circle, where ranks have parted ways. Who of these
// is to blame says parted_ways.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/session/known_rank.h"

namespace megalith {

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
};
const char* name_of(Hang::Kind kind);

// `known`: of rank 0, 1, ... of the job. The group that is named "session" is that of the session. Calls that have been
// waited for less than `least` seconds count as going on.
Hang diagnose(const std::vector<KnownRank>& known, double least);

}  // namespace megalith
