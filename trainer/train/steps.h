// The steps of a run: launched, reported in the same order and, where they were skipped, explained.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "trainer/checkpointing/progress.h"
#include "trainer/job/workplace.h"
#include "trainer/step/text_data.h"
#include "trainer/train/metrics.h"
#include "trainer/train/policy.h"
#include "trainer/train/step_profiler.h"

namespace megalith {

class Steps {
 public:
  // All outlive it.
  Steps(const Config& config, const Session& session, Workplace& work, const Loader& data, StepProfiler& profiler,
        Metrics& metrics);

  // The step after `progress`. The flags are asked for when its last sum is launched.
  policy::Event launch(const Progress& progress, const std::function<ControlFlags()>& flags);
  // Collective: waits for the oldest step in flight and reports it. It is the last() from then on.
  const StepScalars& report();
  // Waits for all that is launched, and reports none of it.
  void drain();

  int64_t last_step() const { return last_.number; }
  const StepScalars& last_scalars() const { return *last_.scalars; }

  // These are about the last step, which was skipped. `progress` counts it.
  void log_overflow(const Progress& progress) const;
  void log_bad_step(const Progress& progress) const;  // collective, as the next
  // `checkpoint_step`: of the newest checkpoint; 0: there is none.
  void keep_bad_step(const Progress& progress, int64_t checkpoint_step, bool ended_the_run) const;

 private:
  // Its scalars are valid once they have been received.
  struct StepInFlight {
    int64_t number = 0;  // from 1
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
  Workplace& work_;
  const Loader& data_;
  StepProfiler& profiler_;
  Metrics& metrics_;
  std::deque<StepInFlight> in_flight_;
  StepInFlight last_;
  int64_t without_graphs_ = 0;  // steps that were to launch them and did not
  bool graphs_logged_ = false;
};

}  // namespace megalith
