// The texts that a run writes during training (train.sample_every), and the memory that they need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// Returns whether train.sample_prompts names a file, which must then be the same for all ranks.
bool names_prompt_file(const std::string& said);

// Returns the prompts of train.sample_prompts: the list, the lines of the file, or, if it is empty, one empty prompt.
// Error: the file cannot be read (data/corpus/prompts.h).
std::vector<std::string> sample_prompts(const TrainConfig& config);

// The size of the cache: `texts` at once, each of `positions` tokens. A token stands for at least one byte, so that the
// size follows from the prompts without their tokenizer; if a tokenizer makes a text longer, only its end is used.
struct SampleRoom {
  int64_t texts = 0, positions = 0;
};
// Returns zeros if train.sample_every is 0. Error: as sample_prompts.
SampleRoom sample_room(const Config& config);

}  // namespace megalith
