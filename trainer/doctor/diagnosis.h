// The doctor finds who is to blame when ranks wait for one another and nothing goes on, by a pure function of the dumps
// of their flight recorders (dump.h). `megalith doctor` asks it, and a job that ends by its time-out for its message.
//
// It blames, in this order:
// 1. ranks whose call of one number is not that of their group, of which some die, for what comes does not fit;
// 2. a rank that has given up, for whoever started the ranks may have ended others since; one that has died; one that
//    is stopped;
// 3. from each rank that waits, those that have not come to its call, and on from these if they wait themselves. That
//    ends at one that is between calls (it computes, or is slow) or has left; at a call that all are in, so that only
//    what carries it can be at fault; or in a cycle, where ranks are out of sync. Of those it blames the ones that
//    deviate from their step before, or from a majority.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/doctor/dump.h"

namespace megalith {

struct Diagnosis {
  enum class Kind : uint8_t {
    none,          // nobody waits
    died,          //
    stopped,       //
    unseen,        //
    another_call,  // it calls something else than its group
    another_size,  // the same call, of other bytes
    skipped,       // it has left out a call
    desync,        // ranks are out of sync, and nobody can say who is at fault
    left,          // in order, while others wait for it
    gave_up,       //
    busy,          // it is between calls: computes, reads, writes, or is slow
    stuck,         // all are in the call
  };
  Kind kind = Kind::none;
  std::vector<int> culprits = {};  // ranks
  int64_t step = 0;                // that these are on
  std::string text = {};           // a sentence that names them, the call and the step
};
const char* name_of(Diagnosis::Kind kind);

// `dumps`: of rank 0, 1, ... of the job. Calls that have been waited for less than `least` seconds count as going on.
Diagnosis diagnose(const std::vector<RankDump>& dumps, double least);

}  // namespace megalith
