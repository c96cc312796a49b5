// A step that was skipped, in words: why, and what each rank knows of it.
#pragma once

#include <string>
#include <vector>

#include "configs/config.h"
#include "data/loader.h"
#include "trainer/checkpointing/checkpointer.h"
#include "trainer/step/trainer.h"

namespace megalith {

// The same on every rank. config.model.vocab must be set.
std::string why_skipped(const Config& config, const StepScalars& scalars);

// What this rank alone can say of a step on the batch that begins with sequence `first_sequence` of the run: the
// samples of its microbatches whose loss is not finite, and where its part of the gradient is not. That part
// is summed over ranks, so that whoever has it need not be who spoilt it. Empty: nothing.
std::string seen_by_this_rank(const Plan& plan, const StepScalars& scalars, const Loader& data, int64_t first_sequence);

// The lines of what said_by_ranks makes of it, each with who says so.
std::vector<std::string> lines_of(const std::string& said);

// What the same command does next, once trouble has ended a run that has this left.
std::string way_back_in_words(const Config& config, const WayBack& back);

// What to give that command. `step`: one to look at.
std::string remedy_of(const Config& config, Decision decision, int64_t step);

}  // namespace megalith
