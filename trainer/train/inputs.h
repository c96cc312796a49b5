// Inputs are what a run trains and evaluates on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/tokenizer.h"
#include "trainer/checkpointing/course.h"
#include "trainer/job/workplace.h"
#include "trainer/step/text_data.h"

namespace megalith {

// Collective. The run folder's copy stands in for a tokenizer that is gone, where the run goes on; nothing where
// data.tokenizer is empty. Sets keys of the config as open_tokenizer() does.
std::unique_ptr<Tokenizer> open_run_tokenizer(Config& config, const Session& session);

struct Inputs {
  Loader data;
  std::optional<HeldOut> held_out;
  bool trained_on_held_out = false;
  std::optional<Course> course;  // on rank 0
};

// Collective; the tokenizer may be null. Makes the plan and the rehearsal of `work` and opens the data, and throws a
// JobError of all that these find wrong, such as too little memory or checkpoints that cannot be gone on from.
// `threads`: of this rank.
Inputs open_inputs(const Config& config, const Session& session, Workplace& work, const Tokenizer* tokenizer,
                   int threads);

// Remembers in the run folder that all ranks have read the token files. On one rank.
void keep_checked(const Config& config, const Inputs& inputs);

}  // namespace megalith
