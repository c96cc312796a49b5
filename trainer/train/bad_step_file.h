// RUN/bad-steps/step-00000004.json records a step that was skipped, other than by an overflow, or that ended the run.
// `megalith replay` reads it.
//
//   step, samples [first, end), learning_rate, ranks, layout, version
//   decision "not finite" or "norm", ended_the_run, skipped_in_a_row, skipped
//   loss, grad_norm, median, loss_scale   numbers, or the words nan, inf and -inf
//   why                                   the log's words
//   first_bad_unit                        the model's last unit whose gradient is not finite, or null
//   by_rank [{rank, units, microbatches [{microbatch, samples by name}]}]   not finite on that rank
//   checkpoint {path, step}               the newest before the step, or null
//   config                                resolved, as TOML
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/samples/loader.h"
#include "trainer/checkpointing/progress.h"
#include "trainer/session/session.h"
#include "trainer/step/trainer.h"

namespace megalith {

struct BadStep {
  int64_t number = 0;
  Interval samples{};
  const StepScalars& scalars;
  double learning_rate = 0;
  const Progress& progress;
  bool ended_the_run = false;
  std::string checkpoint{};
  int64_t checkpoint_step = 0;
};

// Collective. Logs a warning if the file cannot be written.
void keep_bad_step(const Config& config, const Session& session, const Plan& plan, const Loader& data,
                   const BadStep& step);

struct KeptStep {
  std::string config;              // TOML
  nlohmann::json loss, grad_norm;  // see number_or_word
  int ranks = 0;
};

// Returns nullopt if there is no file. Error: the file is not valid, or has another step.
std::optional<KeptStep> read_bad_step(const std::string& run_folder, int64_t step);

// Returns a number, or one of "nan", "inf" and "-inf".
nlohmann::json number_or_word(double value);

}  // namespace megalith
