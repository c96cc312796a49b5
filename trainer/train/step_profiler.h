// Profiles a run's steps: the breakdown of each step's time (step/account.h), averaged over the ranks, the slowest rank
// and the memory, a summary at the end, and a trace file of train.trace_steps.
//
// In the cuda world a step ends on the GPU, after the host: the host runs ahead, and once the GPU's launch queue is
// full it reads a step's scalars almost a step late.
//
// The cpu world profiles every step, and the ranks' statistics are sent with the step's scalars. In the cuda world
// profiling costs time, so it covers every measured_every-th step and traced ones, and the breakdowns are exchanged
// when the step is reported.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "configs/step_range.h"
#include "trainer/job/rank_context.h"
#include "trainer/step/step_clock.h"
#include "trainer/train/measured.h"

namespace megalith {

// Predicts the trace of a step on the machines of [hardware].
using Forecast = std::function<std::vector<TraceProcess>(const Config& config, int ranks)>;

class StepProfiler {
 public:
  // `session` and `work`, which must be open, must outlive it. Rank 0 calls `forecast` for a trace if [hardware] names
  // machines.
  StepProfiler(const Config& config, const Session& session, RankContext& work, const Forecast& forecast);
  ~StepProfiler() { work_.runtime->stream.trace().keep_time(nullptr); }
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // All calls are collective. start(), write_trace() and between() return the time by StepClock::host_now() at which
  // the next step begins.
  double start(int64_t completed);
  // Returns this rank's statistics of the current step.
  HostStats stats();
  void begin_launch(int64_t step);
  void end_launch(int64_t step);
  // Requires that the step's scalars have been received.
  Measured report(int64_t step, const StepScalars& scalars);
  // Returns whether the trace is complete and must be written.
  bool trace_is_over(int64_t step) const { return tracing_ && step == traced_->last; }
  double write_trace();
  // Does `work` between two steps. All time since the first step counts as `account` of the second, unless a GPU has a
  // step in flight that overlaps with the work.
  double between(Account account, const std::function<void()>& work);
  // Writes an unfinished trace and logs the summary. Returns the time after the last step; on a GPU, whose summary is
  // of the measured steps only, nothing.
  Accounts finish();

  static constexpr int64_t measured_every = 20;

 private:
  bool on_gpu() const { return work_.device.world == World::cuda; }
  bool traces(int64_t step) const { return traced_ && traced_->first <= step && step <= traced_->last; }
  // A GPU's breakdown may be unknown when a trace sets the clock, so the step before a trace is not measured.
  bool measures(int64_t step) const {
    return !on_gpu() || traces(step) || (step % measured_every == 0 && !traces(step + 1));
  }
  void begin_trace();
  // Returns host seconds that correspond to the time of events in the stream from here on. The stream must be idle.
  double set_device_time();

  const Config& config_;
  const Session& session_;
  RankContext& work_;
  StepClock clock_;
  std::optional<StepRange> traced_;
  std::vector<TraceProcess> predicted_;  // one step
  bool tracing_ = false;
  double begun_ = 0;  // host's seconds at which the step, or the work before it, began
  // A GPU's time is relative to an event that has passed and the host's seconds at that time; `ends_` has an event for
  // the end of each step that is not reported yet.
  device::OwnedEvent reference_;
  double reference_at_ = 0;
  std::deque<device::OwnedEvent> ends_;
  Accounts between_{}, sum_{};
  int64_t measured_ = 0;  // number of steps in sum_
  double device_bytes_ = 0;
};

}  // namespace megalith
