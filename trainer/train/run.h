// `megalith train`: a run from config to last checkpoint.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "trainer/checkpointing/checkpointer.h"
#include "trainer/job/workplace.h"
#include "trainer/step/process_memory.h"
#include "trainer/step/text_data.h"
#include "trainer/train/bookkeeper.h"
#include "trainer/train/ending.h"
#include "trainer/train/metrics.h"
#include "trainer/train/run_folder.h"
#include "trainer/train/saves.h"

namespace megalith {

class Run {
 public:
  // Collective. Everything that can be wrong is found here, before training starts, and thrown as a JobError on all
  // ranks. `session` must outlive it. The forecast is for a trace (bookkeeper.h).
  Run(Config config, const Session& session, const Forecast& forecast = {});
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Collective: to the last step, until the time is up, or until a signal asks for the end. Returns the exit status: 0,
  // or what Ending has after a signal. Where no checkpoint can be written, as on a full disk, it goes on and tries
  // again, until checkpoint.patience is over, which is a JobError. JobError as well where trouble ends it
  // (checkpointing/sanity.h):
  // after train.max_bad_steps skipped in a row; when a checkpoint holds values that are not finite, since nothing that
  // follows from them can be; and where the last validation loss is not finite. Of checkpoint.directory the next run
  // then goes on from a checkpoint from before the trouble, and those since, the weights of the last update among them,
  // are kept as suspects; after a validation loss, which may be its data's fault, all stay as they are.
  int train();

  // For tests, which spoil a step.
  Trainer& trainer() { return *work_->trainer; }
  const Progress& progress() const { return progress_; }

 private:
  // A step in flight: its scalars are valid once they have been received.
  struct Launched {
    int64_t number = 0;  // from 1
    int64_t first_sequence = 0;
    Stream::Ticket ticket = 0;
    std::unique_ptr<StepScalars> scalars = std::make_unique<StepScalars>();
  };

  void add_up_plans();
  void set_weights();
  Rates rates() const;
  Start start(int threads, Course course) const;

  void train_to_the_end();
  void between(Account account, const std::function<void()>& work) {
    metrics_->start_clock(books_->between(account, work));
  }
  Launched step();
  void say_graphs(const GraphCounts& of_step);
  Votes vote() const;
  void report(const Launched& step);
  void report_skipped(const Launched& step);
  [[noreturn]] void give_up(const Launched& step);
  void keep(const Launched& step, bool ended_the_run);
  void evaluate();
  std::optional<double> held_out_loss();  // nothing: a signal came between its batches, and leaves no time for the rest
  LastWeights last_weights();
  void check_validation() const;  // JobError: the last one is not finite
  void save();
  bool due(int64_t every) const;
  bool evaluates() const;
  bool saves() const;

  const Uninterrupted this_thread_;  // first: threads of kernels are started later
  const Session& session_;
  Config config_;
  std::optional<Workplace> work_;
  std::optional<Loader> data_;
  std::optional<HeldOut> held_out_;
  bool trained_on_held_out_ = false;
  std::optional<RunFolder> folder_;
  std::optional<Checkpointer> checkpointer_;
  Progress progress_;        // of the latest step; what was skipped, of the latest that was reported
  Progress last_update_;     // as it was then; before the first since a resume, as it was resumed, skipped or not
  double flops_ = 0;         // of a step, on all ranks
  MemorySizes memory_{};     // of the fullest rank
  ProcessMemory process_{};  // of the same; nothing on GPUs
  std::optional<Metrics> metrics_;
  std::optional<Bookkeeper> books_;
  bool validation_is_finite_ = true;  // the last
  bool lacks_evaluation_ = false;     // of the latest step, which was to be evaluated
  std::chrono::steady_clock::time_point start_;
  int64_t without_graphs_ = 0;  // steps that were to launch them and did not
  bool said_graphs_ = false;
  bool stop_ = false;      // all ranks know that the time is up, or that a signal has come
  bool save_due_ = false;  // and that checkpoint.minutes have passed
  double phases_ = 0;      // and how many phases of saves beside the steps they have ended together
  std::optional<Ending> ending_;
  std::optional<Saves> saves_;
};

}  // namespace megalith
