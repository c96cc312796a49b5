// Reads the history of a run from RUN/metrics.jsonl, RUN/config.toml and RUN/log.txt.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace megalith {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

struct Abscissae {
  std::vector<double> step, tokens, hours;  // hours of training, without the time between starts
};

struct DataSource {
  std::string name, content;  // content: size and hash, in words
  int64_t samples = 0;        // an epoch
};

// A text that the model wrote after the step (train.sample_every).
struct WrittenText {
  int64_t step = 0;
  std::string prompt, text;
};

struct RunLog {
  // done: all steps are complete; ended: early, `words` has the reason; open: it is running or was killed; unknown: no
  // log.
  enum class End { unknown, open, ended, done };
  End end = End::unknown;
  std::string words;                  // the line of the end, without its time
  std::vector<std::string> warnings;  // with their times, over all starts
};

struct History {
  std::string folder;
  // These come from the last start and are empty or 0 in files without starts.
  std::string layout, device, compute, host;
  int64_t ranks = 0, parameters = 0, planned_steps = 0;
  std::string version, command, tokenizer, tokenizer_name, validation;  // tokenizer: its hash
  std::vector<DataSource> data;
  // A checkpoint from which a start continued another run, or its own with another decay of the learning rate.
  struct Origin {
    std::string checkpoint, decay;  // decay: how it differs
    int64_t step = 0;
  };
  std::vector<Origin> origins;
  int64_t samples = 0;                         // trained on
  double began = no_number, last = no_number;  // seconds since 1970: the first start, the last line

  Abscissae steps;
  // A value that is missing or not finite is `no_number` here.
  std::vector<double> loss, norm, learning_rate, tokens_per_second, mfu;
  std::vector<size_t> skipped;  // indices of steps
  std::vector<size_t> resumed;  // indices of the first steps of later starts
  // Steps with a breakdown of their time: all of them or, on a GPU, every 20th.
  std::vector<double> timed_steps;
  std::map<std::string, std::vector<double>> time;

  Abscissae evaluations;
  std::vector<double> validation_loss, bits_per_byte;     // of several sets the first
  std::map<std::string, std::vector<double>> set_losses;  // of each named set

  std::vector<WrittenText> texts;  // by step

  // Bytes of the fullest rank: planned by class, and the measured maximum by kind.
  std::vector<std::pair<std::string, double>> planned_memory, measured_memory;

  std::map<std::string, std::string> settings;  // config.toml
  std::string settings_unknown;                 // the error if the settings are empty
  RunLog log;
  std::string prompt, continuation;  // by the newest checkpoint, on request
};

// Reads the end of a run and its warnings from its log.txt.
RunLog read_run_log(const std::string& path);

// Error: there is no run folder or no step, or a line other than a cut last one is unreadable.
History read_history(const std::string& run_folder);

}  // namespace megalith
