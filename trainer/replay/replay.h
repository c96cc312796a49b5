// `megalith replay`: one step of a run again, from the newest checkpoint before it, with every op's output looked at.
//
// The config is the one that the run had in that step where the run has kept it (train/bad_step_file.h), else that of
// config.toml. Steps between the checkpoint and the wanted one are trained first. On as many ranks in the same layout
// everything has the same bits as it had; another layout rounds its sums in another order. Nothing is written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/replay/first_bad_op.h"
#include "trainer/session/session.h"
#include "trainer/step/trainer.h"

namespace megalith {

struct ReplayOptions {
  std::string run;                          // its folder
  int64_t step = 0;                         // counted from 1
  std::string checkpoint = {};              // empty: the newest before the step
  std::vector<std::string> overrides = {};  // of the layout and the like, see check_replayable
};

// Error, naming the key, for overrides that would make it another step: those may change how it is computed, and where
// its data lie.
void check_replayable(const std::vector<std::string>& overrides);

struct Replayed {
  int64_t step = 0;
  std::string from;           // checkpoint; empty: the initial weights
  int64_t from_step = 0;      // of that
  StepScalars scalars{};      // of the step
  std::string what = {};      // the step in words: its loss, its norm, and why it was skipped if it was
  std::string recorded = {};  // what the run says of it, and whether this is the same; empty: nothing is kept
  std::vector<std::string> bad_weights{};  // parameters of which, before the step, some were not finite
  std::optional<BadOp> first{};            // of all ranks; nothing: every op's output is finite
  std::vector<int> ranks{};                // that have the same
  std::string samples = {};                // of its microbatch, by name; empty: it is of none
};

// Collective; the same on every rank. Tells on rank 0's console what it does. JobError: no run, no such step, a layout
// that does not fit.
Replayed replay(const ReplayOptions& options, const Session& session);

// What was found, as lines.
std::vector<std::string> lines_of(const Replayed& replayed);

}  // namespace megalith
