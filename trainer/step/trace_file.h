// Writes where time went, op by op, as a file that ui.perfetto.dev and chrome://tracing open (Chrome's JSON trace event
// format: complete events, in microseconds). Predicted steps and measured ones are written by this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "trainer/step/account.h"

namespace megalith {

constexpr int schedule_lane = -2;  // above that of compute

// Something that takes time on a lane: on that of compute, -1, an op, or the wait for something else, inside of each
// other at most; on a channel's, a transfer, from when it begins until it is over; on the schedule's, an action of the
// schedule, from its first op to its last.
struct Span {
  std::string name;
  int lane = -1;
  double begin = 0, end = 0;       // seconds
  Account account{};               // of a span of compute
  const char* category = nullptr;  // of a span of the schedule
};

// The spans of a rank, or of a stage of a prediction.
struct TraceProcess {
  std::string name;
  std::vector<Span> spans;
};

// One after the other, so that those of a large job need not be in memory together.
class TraceFile {
 public:
  // Nothing is at `path` before the file is whole; what was there is replaced.
  explicit TraceFile(const std::string& path);
  // A process of the trace, with a track for the schedule, for compute and for each channel that has something; where
  // spans of a channel overlap, several.
  void add(const TraceProcess& process);
  void publish();

 private:
  void write(const std::string& text);

  NewFile file_;
  std::string text_;  // not written yet
  int processes_ = 0;
  bool first_ = true;
};

}  // namespace megalith
