// The texts that a run writes while it trains (train.sample_every), and the room that they take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"

namespace megalith {

// Returns whether train.sample_prompts names a file, which then has to be the same for all ranks.
bool names_prompt_file(const std::string& said);

// Returns the prompts of train.sample_prompts: the list, the lines of the file, or, where it is empty, one empty
// prompt. Error: the file cannot be read (data/corpus/prompts.h).
std::vector<std::string> sample_prompts(const TrainConfig& config);

// The cache holds so many texts at once, each of so many tokens. A token stands for a byte or more, so that the room
// follows from the prompts without their tokenizer; a text that a tokenizer makes longer goes on from its end.
struct SampleRoom {
  int64_t texts = 0, positions = 0;
};
// Error: as sample_prompts. No room where train.sample_every is 0.
SampleRoom sample_room(const Config& config);

}  // namespace megalith
