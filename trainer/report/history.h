// What a run folder says of its course: RUN/metrics.jsonl, read from beginning to end, RUN/config.toml and RUN/log.txt.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/report/run_log.h"

namespace megalith {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

// Along steps or evaluations, in their order.
struct Abscissae {
  std::vector<double> step, tokens, hours;  // hours of training: over all starts, without what lies between them
};

// A source of training tokens, as the start says it.
struct Source {
  std::string name, content;  // content: its bytes and a hash of them, in words
  int64_t samples = 0;        // of an epoch
};

struct History {
  std::string folder;
  // Of the last start, as far as it says so; empty or 0 in files from before there were starts.
  std::string layout, device, compute, host;
  int64_t ranks = 0, parameters = 0, planned_steps = 0;
  std::string version, command, tokenizer, tokenizer_name, held_out;  // tokenizer: a hash of it
  std::vector<Source> data;
  int64_t samples = 0;                         // that it has trained on
  double began = no_number, last = no_number;  // seconds since 1970: the first start, the last line

  Abscissae steps;
  // By step; `no_number` also where it is not finite.
  std::vector<double> loss, norm, learning_rate, tokens_per_second, mfu;
  std::vector<size_t> skipped;  // indices of steps
  std::vector<size_t> resumed;  // indices of the first steps of later starts
  // What the seconds of a step went to, by the steps that say it: all but on a GPU, where every 20th does.
  std::vector<double> timed_steps;
  std::map<std::string, std::vector<double>> time;

  Abscissae evaluations;
  std::vector<double> held_out_loss, bits_per_byte;

  // Bytes of the fullest rank's device: planned by class; and the most that was measured, by kind.
  std::vector<std::pair<std::string, double>> planned_memory, measured_memory;

  std::map<std::string, std::string> settings;  // of config.toml
  std::string settings_unknown;                 // why there are none
  RunLog log;
  std::string prompt, continuation;  // by the newest checkpoint, where the report was asked for it
};

// Errors: no run folder, a file without steps, a line that cannot be read, each with the file, the line and the remedy.
// The last line may be one that a death has cut short.
History read_history(const std::string& run_folder);

}  // namespace megalith
