// The doctor finds which ranks are to blame when ranks wait for one another and the job hangs, by a pure function of
// the dumps of their flight recorders (dump.h). `megalith doctor` prints the result, and a job that ends by its
// time-out has it in its message.
//
// It blames, in this order:
// 1. ranks whose call with some number differs from that of their group; some of them may have died of it;
// 2. a rank that has given up, since the launcher may then have ended others; one that has died; one that is stopped;
// 3. starting from each rank that waits: those that have not reached its call, and so on if these wait themselves.
// The search ends at a rank that is between calls (it computes, or is slow) or has left; at a call that all are in, so
// that only the transport can be at fault; or in a cycle, where ranks are out of sync. Of those in a cycle it blames
// the ones that deviate from their previous step, or from a majority.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/doctor/dump.h"

namespace megalith {

struct Diagnosis {
  enum class Kind : uint8_t {
    none,          // no rank waits
    died,          //
    stopped,       //
    unseen,        //
    another_call,  // its call differs from its group's
    another_size,  // the same call with another number of bytes
    skipped,       // it has left out a call
    desync,        // ranks are out of sync, and it is undecided which are at fault
    left,          // ended in order, while others wait for it
    gave_up,       //
    busy,          // it is between calls: computes, reads, writes, or is slow
    stuck,         // all are in the call
  };
  Kind kind = Kind::none;
  std::vector<int> culprits = {};  // ranks
  int64_t step = 0;                // the step of the culprits
  std::string text = {};           // a sentence that names them, the call and the step
};
const char* name_of(Diagnosis::Kind kind);

// `dumps`: of rank 0, 1, ... of the job. Calls awaited for less than `least` seconds do not count as stuck.
Diagnosis diagnose(const std::vector<RankDump>& dumps, double least);

}  // namespace megalith
