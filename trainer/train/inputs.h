// Opens the data that a run trains and evaluates on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/tokenizers/tokenizer.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/job/rank_context.h"
#include "trainer/step/text_data.h"

namespace megalith {

// Collective. A run that resumes uses the run folder's copy if the tokenizer is gone. Returns null if data.tokenizer is
// empty. Sets keys of the config as open_tokenizer() does.
std::unique_ptr<Tokenizer> open_run_tokenizer(Config& config, const Session& session);

// Returns the content of the validation sets, by which another run can tell whether its sets are the same.
std::string content_of_validation(const std::vector<ValidationSet>& sets);

struct Inputs {
  Loader data;
  std::vector<ValidationSet> validation;
  bool trained_on_validation = false;
  std::vector<std::string> trained_on_twice = {};  // files_trained_on_twice(), on rank 0
  std::optional<RunFingerprint> fingerprint;       // on rank 0
};

// Collective; the tokenizer may be null. Dry-runs `work`, opens the data and throws a JobError for any error, such as
// too little memory or checkpoints that cannot be resumed. `threads` are this rank's.
Inputs open_inputs(const Config& config, const Session& session, RankContext& work, const Tokenizer* tokenizer,
                   int threads);

// Records in the run folder, on one rank, that all ranks have read the token files.
void keep_checked(const Config& config, const Inputs& inputs);

}  // namespace megalith
