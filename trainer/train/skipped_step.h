// Describes a skipped step in words.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "data/samples/loader.h"
#include "trainer/checkpointing/restart_point.h"
#include "trainer/step/trainer.h"

namespace megalith {

// Returns the same on every rank. config.model.vocab must be set.
std::string why_skipped(const Config& config, const StepScalars& scalars);

// Names the samples of a microbatch. Its batch begins with sequence `first_sequence` of the run.
std::vector<std::string> sample_names(const Plan& plan, const Loader& data, int64_t microbatch, int64_t first_sequence);

// Names the samples of this rank's microbatches with a loss that is not finite, and the units of its shard of the
// gradient that are not. The shard is summed over ranks, so this rank need not be the cause. The batch begins with
// sequence `first_sequence` of the run.
std::string seen_by_this_rank(const Plan& plan, const StepScalars& scalars, const Loader& data, int64_t first_sequence);

// Splits the text of merge_messages into lines, each with its ranks.
std::vector<std::string> lines_of(const std::string& said);

// Describes from where the same command resumes after a run that bad steps or a bad state have ended.
std::string restart_in_words(const Config& config, const RestartPoint& back);

// Describes what to change. `step` is one to inspect.
std::string remedy_of(const Config& config, Decision decision, int64_t step);

}  // namespace megalith
