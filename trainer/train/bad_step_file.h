// What a run keeps of a step that was skipped, but for overflows that lower a loss scale, or that has ended it:
// RUN/bad-steps/step-00000004.json, so that it can be looked at, and repeated by `megalith replay`.
//
//   step, samples [first, end) of the run, learning_rate, ranks, layout, version
//   decision "not finite" or "norm", ended_the_run, skipped_in_a_row, skipped
//   loss, grad_norm, median, loss_scale   numbers, or the words nan, inf and -inf
//   why                                   the same in words, as the log has it
//   first_bad_unit                        the last of the model whose gradient is not finite; null: none
//   by_rank [{rank, units, microbatches [{microbatch, samples by name}]}]   what each rank found that is not finite
//   checkpoint {path, step}               the newest before it, when it was written; null: there was none
//   config                                resolved, as TOML, of the run as it was then
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "trainer/checkpointing/checkpointer.h"

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

// Collective. A file that cannot be written is a warning in the log.
void keep_bad_step(const Config& config, const Session& session, const Plan& plan, const Loader& data,
                   const BadStep& step);

// What repeating a step takes of its file.
struct KeptStep {
  std::string config;              // as TOML
  nlohmann::json loss, grad_norm;  // as number_or_word
  int ranks = 0;
};

// Nothing where the run has kept none of this step. Error: the file cannot be understood, or is of another step.
std::optional<KeptStep> read_bad_step(const std::string& run_folder, int64_t step);

// A number, or the word for what is none.
nlohmann::json number_or_word(double value);

}  // namespace megalith
