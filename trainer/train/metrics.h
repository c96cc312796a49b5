// Reports a run on rank 0: lines on the console and in log.txt, and every step and evaluation in metrics.jsonl and, on
// request, TensorBoard's files.
//
// metrics.jsonl has an object a line: {"start": {...}} with constants, before the first step of each start of the run;
// {"step": 3, "loss": ...} for a step; {"step": 3, "validation_loss": ...} for an evaluation after it, of several sets
// the first, with "sets": {NAME: {"loss": ...}, ...}; {"step": 3, "texts": [{"prompt": ..., "text": ...}, ...]} for
// the texts of the model then; {"step": 3, "time_after": {ACCOUNT:
// seconds}} for the end of a start. Older files have the constants in each step instead.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/log/retrying_file.h"
#include "trainer/step/process_memory.h"
#include "trainer/step/trainer.h"
#include "trainer/train/line_pace.h"
#include "trainer/train/measured.h"
#include "trainer/train/progress_bar.h"
#include "trainer/train/samples.h"
#include "trainer/train/tensorboard.h"

namespace megalith {

// Constants of a run that convert counts to rates.
struct Rates {
  double tokens_per_step = 0;          // all ranks
  bool masked = false;                 // not all of them count in the loss
  double model_flops_per_token = 0;    // causal attention, no recompute
  double full_flops_per_token = 0;     // full attention, as in many published figures
  double hardware_flops_per_step = 0;  // all ranks, as executed
  double peak_flops = 0;               // FLOP/s a device; 0: unknown
  int devices = 1;
  int64_t steps = 0;          // whole run
  int64_t tokens_before = 0;  // trained on before this start
  MemorySizes memory{};       // planned for the rank with the fullest device
  ProcessMemory process{};    // in addition to `memory`, on a CPU
};

// The other fields of a start.
struct RunHeader {
  std::string version = {}, config_digest = {};
  std::string layout = {}, sharding_strategy = {}, compute = {}, device = {};
  int64_t parameters = 0;
  int threads = 0;  // a rank
  std::string command = {};
  RunFingerprint fingerprint = {};
  std::string validation = {};  // content_of_source() of data.validation
  // A checkpoint of another folder, or one that continues with another decay, and how that decay differs.
  std::string resumed_from = {}, other_decay = {};
};

struct Reporting {
  int64_t log_every = 0;     // train.log_every
  bool tensorboard = false;  // run.tensorboard
};

// The result for one set of data.validation.
struct EvaluatedSet {
  std::string name = {};  // empty for an only set
  double loss = 0;        // nats a token
  int64_t tokens = 0;     // that count
  int64_t bytes = 0;      // of their text; 0: unknown
};

struct StepReport {
  int64_t step = 0;
  const StepScalars& scalars;
  double learning_rate = 0;
  Interval samples{};
  Measured measured{};
};

class Metrics {
 public:
  // Opens DIR/metrics.jsonl, drops lines beyond `completed` steps and warns of missing ones. If the run starts from
  // step 0, or the file has lines that no run has written, the earlier file is kept as DIR/metrics.earlier-K.jsonl, and
  // TensorBoard's as DIR/tensorboard.earlier-K. A full disk does not end the run (log/retrying_file.h). On ranks other
  // than 0 every call does nothing.
  Metrics(const std::string& run_folder, bool rank0, int64_t completed, const Rates& rates, RunHeader header = {},
          const Reporting& reporting = {});
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The next step begins `now`, by StepClock::host_now(); later steps begin when the previous one has ended.
  void start_clock(double now) { begin_ = now; }
  // Writes the step, with "skipped": "not finite" (such numbers are null), "norm" or "overflow" if it was skipped, with
  // "loss_scale" in fp16, and with "counted_tokens" if not all tokens count. Skipped steps and those that LinePace
  // chooses get a line on the console and in the log.
  void end_step(const StepReport& report);
  // Logs the line of the last step if it has none yet.
  void log_last_step();

  // Writes everything, including log.txt, to the disk before a checkpoint, which must not contain more steps. Warns of
  // files that others have removed, which it creates again.
  void sync();

  // Reports an evaluation after `step` steps. Its loss is that of the first set; the others come in addition.
  void evaluation(int64_t step, const std::vector<EvaluatedSet>& sets);

  // Reports how long evaluation, texts and checkpoint took after the last step.
  void time_after(int64_t step, const Accounts& accounts);

  // Reports the texts that the model writes after `step` steps.
  void samples(int64_t step, const std::vector<SampledText>& samples);

 private:
  void log_last_line(bool console, bool file);  // last_line_
  // Writes a line of metrics.jsonl; before the first one, the line of the start.
  void write(nlohmann::ordered_json line);
  nlohmann::ordered_json start_line() const;

  bool active_;
  std::string folder_;
  Rates rates_;
  RunHeader header_;
  std::optional<RetryingFile> file_;
  std::optional<EventFile> events_;
  ProgressBar bar_;
  LinePace console_pace_, file_pace_;
  std::vector<LinePart> last_line_;
  bool on_console_ = true, in_file_ = true;  // last_line_ was logged there
  double begin_ = 0, run_begin_ = StepClock::host_now();
  int64_t first_step_, tokens_;
  bool started_ = false;
};

// Converts a mean loss in nats a token.
double bits_per_byte(double loss, int64_t tokens, int64_t bytes);

}  // namespace megalith
