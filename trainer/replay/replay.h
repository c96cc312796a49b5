// `megalith replay` repeats one step of a run from the newest checkpoint before it and checks every op's output. It
// takes the config from the step's file (train/bad_step_file.h) or config.toml, trains the steps in between first and
// writes nothing. In the same layout all bits are the same; other layouts round their sums differently.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/replay/first_bad_op.h"
#include "trainer/session/session.h"
#include "trainer/step/trainer.h"

namespace megalith {

struct ReplayOptions {
  std::string run;                          // folder
  int64_t step = 0;                         // counted from 1
  std::string checkpoint = {};              // empty: the newest before the step
  std::vector<std::string> overrides = {};  // see check_replayable
};

// Throws an error for overrides that change more than how the step is computed and where its data is.
void check_replayable(const std::vector<std::string>& overrides);

struct Replayed {
  int64_t step = 0;
  std::string from;  // checkpoint; empty: the initial weights
  int64_t from_step = 0;
  StepScalars scalars{};
  std::string what = {};                   // loss, norm and why the step was skipped, if so
  std::string recorded = {};               // comparison with the step's file, if there is one
  std::vector<std::string> bad_weights{};  // parameters not finite before the step
  std::optional<BadOp> first{};            // over all ranks; empty: every output is finite
  std::vector<int> ranks{};                // ranks with the same first op
  std::string samples = {};                // names in the first op's microbatch
};

// Collective. Returns the same on every rank and logs on rank 0's console. JobError: no run, no such step, a layout
// that does not fit.
Replayed replay(const ReplayOptions& options, const Session& session);

// Returns the result as lines of text.
std::vector<std::string> lines_of(const Replayed& replayed);

}  // namespace megalith
