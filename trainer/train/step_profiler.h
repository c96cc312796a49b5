// What a run's steps took: of each the time by account, as mean over the ranks, which rank was slowest, and the memory
// taken (step/account.h); all of them together at the end; and of train.trace_steps a file with every op and transfer.
//
// In the cpu world every step is measured, and what a rank tells the others travels with the step's scalars. In the
// cuda world, where measuring costs, it is one step of some (measured_every), and those that are traced; there the
// ranks exchange their accounts when the step is reported.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "configs/step_range.h"
#include "trainer/job/workplace.h"
#include "trainer/step/step_clock.h"
#include "trainer/train/measured.h"

namespace megalith {

// The step of a config on so many ranks as the planner has it, on the machines of [hardware], which it names.
using Forecast = std::function<std::vector<TraceProcess>(const Config& config, int ranks)>;

class StepProfiler {
 public:
  // `session` and `work`, whose runtime and trainer are made, must outlive it. Rank 0 asks for the forecast, where a
  // trace is wanted and [hardware] names machines, and may get its errors.
  StepProfiler(const Config& config, const Session& session, Workplace& work, const Forecast& forecast);
  ~StepProfiler() { work_.runtime->stream.trace().keep_time(nullptr); }
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // All calls are made by all ranks in the same order. Steps follow one another from here on; `completed` are those
  // made before. This, write_trace() and between() return when the next step begins, by StepClock::host_now().
  double start(int64_t completed);
  // Returns what this rank tells the others of the step under way.
  HostStats stats();
  // Around the launch of a step.
  void begin_launch(int64_t step);
  void end_launch(int64_t step);
  // The step's scalars have been received.
  Measured report(int64_t step, const StepScalars& scalars);
  // Whether the last step to be traced has been reported; the trace is to be written then.
  bool trace_is_over(int64_t step) const { return tracing_ && step == traced_->last; }
  double write_trace();
  // Work between two steps, with all that came since the first: it is in the account of the second.
  double between(Account account, const std::function<void()>& work);
  // After the last step: writes what is left of a trace, and logs where the time went.
  void finish();

  static constexpr int64_t measured_every = 20;

 private:
  bool on_gpu() const { return work_.device.world == World::cuda; }
  bool traces(int64_t step) const { return traced_ && traced_->first <= step && step <= traced_->last; }
  // Not on a GPU before a trace: its account may not be known yet when the clock is set.
  bool measures(int64_t step) const {
    return !on_gpu() || traces(step) || (step % measured_every == 0 && !traces(step + 1));
  }
  void begin_trace();

  const Config& config_;
  const Session& session_;
  Workplace& work_;
  StepClock clock_;
  std::optional<StepRange> traced_;
  std::vector<TraceProcess> predicted_;  // a step
  bool tracing_ = false;
  double begun_ = 0;  // the step that is under way, or what lies before it, by the host's clock
  Accounts between_{}, sum_{};
  int64_t measured_ = 0;  // steps in sum_
  double device_bytes_ = 0;
};

}  // namespace megalith
