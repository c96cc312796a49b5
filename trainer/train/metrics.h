// What a run reports: a line for each step and each evaluation on the console and in log.txt, and an object for each in
// metrics.jsonl. Rank 0 only.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "kernels/base/files.h"
#include "trainer/step/trainer.h"
#include "trainer/train/measured.h"
#include "trainer/train/progress_bar.h"

namespace megalith {

// What does not change from step to step and makes counts into rates.
struct Rates {
  double tokens_per_step = 0;          // over all ranks
  double model_flops_per_token = 0;    // causal attention, no recompute
  double full_flops_per_token = 0;     // the same, as if attention were not causal: many published figures count so
  double hardware_flops_per_step = 0;  // over all ranks, as executed
  double peak_flops = 0;               // of a device, a second; 0: unknown
  int devices = 1;
  int64_t steps = 0;     // of the whole run, for the ETA
  MemorySizes memory{};  // planned, of the rank that is fullest on its device
};

// A step that has ended.
struct StepReport {
  int64_t step = 0;
  const StepScalars& scalars;
  double learning_rate = 0;
  Interval samples{};  // which of the run it trained on
  Measured measured{};
};

class Metrics {
 public:
  // Opens DIR/metrics.jsonl and drops what it holds beyond `completed` steps, so that it reads as if the run had never
  // stopped. Where the run starts from step 0, steps of an earlier start are kept as DIR/metrics.earlier-K.jsonl. On
  // other ranks than 0 nothing is opened and every call does nothing.
  Metrics(const std::string& run_folder, bool rank0, int64_t completed, const Rates& rates);

  // Steps follow one another from here on, by the wall clock of this rank: a step's time is the time since the one
  // before it ended.
  void start_clock() { begin_ = Clock::now(); }
  // A step that was skipped has the field "skipped": "not finite" (what of loss and norm is not, is null), "norm" or
  // "overflow"; in fp16 each has its "loss_scale".
  void end_step(const StepReport& report);

  // What was written so far is on the disk: called before a checkpoint, which must not know of more steps.
  void sync();

  // Evaluation after `step` updates; bytes: of the text that the evaluated tokens stand for, 0 if unknown.
  void evaluation(int64_t step, double loss, int64_t tokens, int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void write(const std::string& line);

  bool active_;
  std::string path_;
  Rates rates_;
  std::optional<File> file_;
  ProgressBar bar_;
  Clock::time_point begin_{}, run_begin_ = Clock::now();
  int64_t first_step_;
};

// Mean loss in nats a token, to bits a byte of text.
double bits_per_byte(double loss, int64_t tokens, int64_t bytes);

}  // namespace megalith
