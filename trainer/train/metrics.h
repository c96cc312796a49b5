// What a run reports: lines about steps and evaluations on the console and in log.txt, and every step and evaluation in
// metrics.jsonl, on request in TensorBoard's files as well. Rank 0 only.
//
// metrics.jsonl has an object a line: {"start": {...}} with what does not change, before the first step of each start
// of the run; {"step": 3, "loss": ...} for a step; {"step": 3, "validation_loss": ...} for an evaluation after it.
// Whoever reads it takes what is there: older files have no starts, and what now stands there in each line of a step.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/checkpointing/course.h"
#include "trainer/log/patient_file.h"
#include "trainer/step/process_memory.h"
#include "trainer/step/trainer.h"
#include "trainer/train/line_pace.h"
#include "trainer/train/measured.h"
#include "trainer/train/progress_bar.h"
#include "trainer/train/tensorboard.h"

namespace megalith {

// What does not change from step to step and makes counts into rates.
struct Rates {
  double tokens_per_step = 0;          // over all ranks
  double model_flops_per_token = 0;    // causal attention, no recompute
  double full_flops_per_token = 0;     // the same, as if attention were not causal: many published figures count so
  double hardware_flops_per_step = 0;  // over all ranks, as executed
  double peak_flops = 0;               // of a device, a second; 0: unknown
  int devices = 1;
  int64_t steps = 0;          // of the whole run, for the ETA
  int64_t tokens_before = 0;  // that the run has trained on when this start begins
  MemorySizes memory{};       // planned, of the rank that is fullest on its device
  ProcessMemory process{};    // of the same on a CPU, beside that
};

// What else a start says of itself.
struct RunHeader {
  std::string version = {};        // of the program
  std::string config_digest = {};  // of the resolved config
  std::string layout = {}, sharding_strategy = {}, compute = {}, device = {};
  int64_t parameters = 0;
  int threads = 0;           // a rank
  std::string command = {};  // that started it
  Course course = {};
  std::string held_out = {};  // what is in data.validation, as content_of_source() says it
};

struct Reporting {
  int64_t log_every = 0;     // as train.log_every
  bool tensorboard = false;  // as run.tensorboard
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
  // stopped. Where the run starts from step 0, steps of an earlier start are kept as DIR/metrics.earlier-K.jsonl, and
  // TensorBoard's as DIR/tensorboard.earlier-K; so is a file with lines that no run has written. Warns of steps before
  // `completed` that it lacks. On other ranks than 0 nothing is opened and every call does nothing. From then on no
  // disk that is full ends the run (job/patient_file.h).
  Metrics(const std::string& run_folder, bool rank0, int64_t completed, const Rates& rates, RunHeader header = {},
          const Reporting& reporting = {});
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Steps follow one another from `now` on, by StepClock::host_now() of this rank: a step's time is the time since the
  // one before it ended.
  void start_clock(double now) { begin_ = now; }
  // A step that was skipped has the field "skipped": "not finite" (what of loss and norm is not, is null), "norm" or
  // "overflow"; in fp16 each has its "loss_scale". It gets a line on console and log if it is its turn, if it is the
  // first of this start, or if it was skipped.
  void end_step(const StepReport& report);
  // The line of the last step, where it has had none: before a line that follows from it, and at the end.
  void say_last_step();

  // Before a checkpoint, which must not know of more steps: what was written so far, log.txt as well, is on the disk,
  // and the last step has its line. Warns of files that others have removed, and are there again.
  void sync();

  // Evaluation after `step` updates; bytes: of the text that the evaluated tokens stand for, 0 if unknown.
  void evaluation(int64_t step, double loss, int64_t tokens, int64_t bytes);

 private:
  void say(bool console, bool file);  // last_line_
  // A line of metrics.jsonl, with the time; the first is preceded by the start's.
  void write(nlohmann::ordered_json line);
  nlohmann::ordered_json start_line() const;

  bool active_;
  std::string folder_;
  Rates rates_;
  RunHeader header_;
  std::optional<PatientFile> file_;
  std::optional<EventFile> events_;
  ProgressBar bar_;
  LinePace console_pace_, file_pace_;
  std::vector<LinePart> last_line_;          // as much of it as a terminal has room for, and all of it elsewhere
  bool on_console_ = true, in_file_ = true;  // whether last_line_ was said there
  double begin_ = 0, run_begin_ = StepClock::host_now();
  int64_t first_step_, tokens_;
  bool started_ = false;
};

// Mean loss in nats a token, to bits a byte of text.
double bits_per_byte(double loss, int64_t tokens, int64_t bytes);

}  // namespace megalith
