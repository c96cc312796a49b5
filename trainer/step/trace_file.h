// Writes a time line, op by op, as a file for ui.perfetto.dev and chrome://tracing (Chrome's JSON trace event format:
// complete events, in microseconds). Predicted and measured steps use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/system/files.h"
#include "trainer/step/account.h"

namespace megalith {

constexpr int schedule_lane = -2;  // displayed above that of compute

// An interval on a lane. Compute, -1: an op, or a wait; spans may be nested but not overlap otherwise. A channel: a
// transfer, from its beginning to its end. The schedule: an action, from its first op to its last.
struct Span {
  std::string name;
  int lane = -1;
  double begin = 0, end = 0;       // seconds
  Account account{};               // compute spans only
  const char* category = nullptr;  // schedule spans only
};

// The spans of a rank, or of a stage of a prediction.
struct TraceProcess {
  std::string name;
  std::vector<Span> spans;
};

// Processes are added one after the other, so that those of a large job need not be in memory together.
class TraceFile {
 public:
  // The file appears at `path` only when it is complete; an existing one is replaced.
  explicit TraceFile(const std::string& path);
  // Adds a process with a track for the schedule, for compute and for each channel with spans; if spans of a channel
  // overlap, several.
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
