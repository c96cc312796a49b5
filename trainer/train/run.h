// Runs `megalith train`, from config to last checkpoint. policy.h decides, Run executes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/checkpointing/checkpointer.h"
#include "trainer/checkpointing/resumer.h"
#include "trainer/job/rank_context.h"
#include "trainer/train/inputs.h"
#include "trainer/train/metrics.h"
#include "trainer/train/policy.h"
#include "trainer/train/preemption.h"
#include "trainer/train/run_folder.h"
#include "trainer/train/samples.h"
#include "trainer/train/saves.h"
#include "trainer/train/step_profiler.h"
#include "trainer/train/steps.h"

namespace megalith {

class Run {
 public:
  // Collective. Any error in config, data or machine is a JobError on all ranks. `session` must outlive it. The
  // forecast is for a trace (step_profiler.h).
  Run(Config config, const Session& session, const Forecast& forecast = {});
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Collective. Trains to the last step, until train.minutes are over or a signal comes, and returns the exit status.
  // JobError: no checkpoint could be written for checkpoint.patience minutes; train.max_bad_steps steps were skipped in
  // a row; a checkpoint's state is not finite; or the last validation loss is not finite. After bad steps or a bad
  // state the next run resumes from a checkpoint before the anomaly (checkpointing/stability.h), and newer ones are
  // kept as suspects.
  int train();

  // Tests use these.
  Trainer& trainer() { return *work_.trainer; }
  const Progress& progress() const { return state_.progress; }

 private:
  struct Load {
    double flops = 0;         // a step, all ranks
    MemorySizes memory{};     // fullest rank
    ProcessMemory process{};  // in addition to `memory`; empty on GPUs
  };

  // These make the members, in their order.
  int meet();
  std::unique_ptr<RunFolder> open_folder();
  Trainer& open_trainer();
  policy::State begin_or_resume();
  Load planned_load() const;
  std::unique_ptr<Metrics> open_metrics();
  Rates rates() const;
  RunHeader header() const;

  ControlFlags flags() const;
  policy::Events obey(const policy::Task& task);
  policy::Event report();
  policy::Event check_preemption();
  policy::Event evaluate();
  std::optional<std::vector<EvaluatedSet>> evaluate_sets();  // nullopt if a signal cuts the evaluation short
  void warn_of_validation() const;
  void sample();
  void prepare_save();
  [[noreturn]] void fail_bad_steps();
  [[noreturn]] void fail_validation() const;
  LastWeights last_weights();
  std::optional<policy::GracePeriod> grace_period() const;
  int end(policy::Act how) const;
  void between(Account account, const std::function<void()>& work) {
    metrics_->start_clock(profiler_->between(account, work));
  }

  const Uninterrupted this_thread_;  // first: threads of kernels are started later
  const Session& session_;
  Config config_;
  const int threads_;  // this rank's
  const std::unique_ptr<Tokenizer> tokenizer_;
  RankContext work_;
  const TextSampler samples_;
  Inputs inputs_;
  const std::unique_ptr<RunFolder> folder_;
  Preemption preemption_;
  Resumer resumer_;
  const policy::Rules rules_;
  policy::State state_;
  Checkpointer checkpointer_;
  Saves saves_;
  const Load load_;
  const std::unique_ptr<Metrics> metrics_;
  const std::unique_ptr<StepProfiler> profiler_;
  Steps steps_;
  std::chrono::steady_clock::time_point training_began_;
};

}  // namespace megalith
