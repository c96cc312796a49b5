// How to use a trained model: the chat template of its training, and the generation_config.json of its base. A run
// keeps both with its tokenizer; an export passes them on; `generate` and `chat` obey them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/generation_config.h"
#include "data/conversations/chat_template.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {

struct ModelUse {
  std::optional<ChatTemplate> chat;  // the template of the training
  GenerationConfig generation;
  // The tokens that end a text, without repetition: that of the template, if its end is one token; those of
  // generation_config.json or, if it has none, the tokenizer's.
  std::vector<int32_t> ends;
};

// Returns how to use these weights with this tokenizer. Error: a file that cannot be read.
ModelUse use_of(const WeightSource& weights, const Tokenizer& tokenizer);

// Returns the folder that has these files, the Hugging Face checkpoint's or the run's; "" if unknown.
std::string folder_of_use(const WeightSource& weights);

}  // namespace megalith
