// Makes a small model in the layout of a large one, to rehearse a recipe for hundreds of GPUs on a few CPU ranks.
#pragma once

#include "configs/config.h"

namespace megalith {

// Returns a Config for few_ranks that uses every mechanism of a valid Config for num_ranks. Degrees are halved, the
// largest first, and none above 1 becomes 1; several nodes remain several; width, heads, layers, sequences, vocabulary
// and limits counted in parameters become small; microbatches become as few as fill the pipeline three times; all other
// options stay. The vocabulary becomes the tokenizer's, and run.output another folder. Error: the layout does not fit
// few_ranks, with the smallest number that it fits.
Config shrink(const Config& config, int64_t num_ranks, int64_t few_ranks);

// As above for all devices of [hardware], which must be set.
Config shrink(const Config& config, int64_t few_ranks);

}  // namespace megalith
