// A small model in the layout of a large one: so that a recipe for hundreds of GPUs can be rehearsed on a few CPU
// ranks.
#pragma once

#include "configs/config.h"

namespace megalith {

// Of a valid Config for num_ranks ranks, one for few_ranks that has every mechanism it has: degrees are divided by two,
// the largest first, and none that is above 1 becomes 1; nodes stay several where they were; width, heads, layers,
// sequences, vocabulary and the limits that are counted in parameters become small; microbatches become as few as fill
// the pipeline three times; schedule, strategy and every other option stay. The vocabulary becomes the tokenizer's, and
// run.output another folder. Error: the layout does not go onto so few ranks, and the least that it does.
Config shrink(const Config& config, int64_t num_ranks, int64_t few_ranks);

// The same for all devices of [hardware], which must name them.
Config shrink(const Config& config, int64_t few_ranks);

}  // namespace megalith
