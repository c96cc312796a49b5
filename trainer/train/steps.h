// Launches the steps of a run, reports them in order and explains skipped ones.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "trainer/checkpointing/progress.h"
#include "trainer/job/rank_context.h"
#include "trainer/step/text_data.h"
#include "trainer/train/metrics.h"
#include "trainer/train/policy.h"
#include "trainer/train/step_profiler.h"

namespace megalith {

class Steps {
 public:
  // The arguments must outlive it.
  Steps(const Config& config, const Session& session, RankContext& work, const Loader& data, StepProfiler& profiler,
        Metrics& metrics);

  // Launches the step after `progress`. `flags` is called when the step's last sum is launched.
  policy::Event launch(const Progress& progress, const std::function<ControlFlags()>& flags);
  // Collective. Waits for the oldest step in flight and reports it.
  const StepScalars& report();
  // Waits for all launched steps without reporting them.
  void drain();

  int64_t last_step() const { return last_.number; }
  const StepScalars& last_scalars() const { return *last_.scalars; }

  // These report on the last step. `progress` counts it; `checkpoint_step` is the newest checkpoint's, or 0.
  void log_overflow(const Progress& progress) const;
  void log_nothing(const Progress& progress) const;
  void log_bad_step(const Progress& progress) const;  // collective, like keep_bad_step()
  void keep_bad_step(const Progress& progress, int64_t checkpoint_step, bool ended_the_run) const;

 private:
  struct StepInFlight {
    int64_t number = 0;  // counts from 1
    int64_t first_sequence = 0;
    Stream::Ticket ticket = 0;
    std::unique_ptr<StepScalars> scalars = std::make_unique<StepScalars>();
  };
  void log_graphs(const GraphCounts& of_step);
  Interval samples_of(const StepInFlight& step) const {
    return {step.first_sequence, step.first_sequence + config_.batch.global_batch_size};
  }

  const Config& config_;
  const Session& session_;
  RankContext& work_;
  const Loader& data_;
  StepProfiler& profiler_;
  Metrics& metrics_;
  std::deque<StepInFlight> in_flight_;
  StepInFlight last_;
  int64_t without_graphs_ = 0;  // number of steps that should have launched graphs and did not
  bool graphs_logged_ = false;
};

}  // namespace megalith
