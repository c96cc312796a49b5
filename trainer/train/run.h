// `megalith train`: a run from config to last checkpoint. policy.h decides what it does, and this obeys.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "trainer/checkpointing/checkpointer.h"
#include "trainer/job/workplace.h"
#include "trainer/train/inputs.h"
#include "trainer/train/metrics.h"
#include "trainer/train/policy.h"
#include "trainer/train/preemption.h"
#include "trainer/train/run_folder.h"
#include "trainer/train/saves.h"
#include "trainer/train/step_profiler.h"
#include "trainer/train/steps.h"

namespace megalith {

class Run {
 public:
  // Collective. Everything that can be wrong is found here, before training starts, and thrown as a JobError on all
  // ranks. `session` must outlive it. The forecast is for a trace (step_profiler.h).
  Run(Config config, const Session& session, const Forecast& forecast = {});
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Collective: to the last step, until the time is up, or until a signal asks for the end. Returns the exit status: 0,
  // or what Preemption has after a signal. Where no checkpoint can be written, as on a full disk, it goes on and tries
  // again, until checkpoint.patience is over, which is a JobError. JobError as well where trouble ends it
  // (checkpointing/sanity.h):
  // after train.max_bad_steps skipped in a row; when a checkpoint holds values that are not finite, since nothing that
  // follows from them can be; and where the last validation loss is not finite. Of checkpoint.directory the next run
  // then goes on from a checkpoint from before the trouble, and those since, the weights of the last update among them,
  // are kept as suspects; after a validation loss, which may be its data's fault, all stay as they are.
  int train();

  // For tests, which spoil a step.
  Trainer& trainer() { return *work_.trainer; }
  const Progress& progress() const { return state_.progress; }

 private:
  // The FLOPs of a step on all ranks, and the memory of the fullest.
  struct Load {
    double flops = 0;
    MemorySizes memory{};
    ProcessMemory process{};  // beside it; nothing on GPUs
  };

  // They make the members, in their order.
  int meet();
  std::unique_ptr<RunFolder> open_folder();
  Trainer& open_trainer();
  policy::State begin_or_resume();
  Load planned_load() const;
  std::unique_ptr<Metrics> open_metrics();
  Rates rates() const;
  RunHeader header() const;

  ControlFlags flags() const;
  policy::Events obey(const policy::Action& action);
  policy::Event report();
  policy::Event check_preemption();
  policy::Event evaluate();
  std::optional<double> held_out_loss();  // nothing: a signal came between its batches, and leaves no time for the rest
  void warn_of_validation() const;
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
  const int threads_;  // of this rank
  const std::unique_ptr<Tokenizer> tokenizer_;
  Workplace work_;
  const Inputs inputs_;
  const std::unique_ptr<RunFolder> folder_;
  Preemption preemption_;
  Checkpointer checkpointer_;
  const policy::Rules rules_;
  policy::State state_;
  Saves saves_;
  const Load load_;
  const std::unique_ptr<Metrics> metrics_;
  const std::unique_ptr<StepProfiler> profiler_;
  Steps steps_;
  std::chrono::steady_clock::time_point start_;  // of training
};

}  // namespace megalith
