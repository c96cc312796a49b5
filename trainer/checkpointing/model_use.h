// How a trained model is used: what its training taught (the chat template) and what the folder of its base said
// (generation_config.json). A run keeps both beside its tokenizer; an export passes them on; `generate` and `chat` obey
// them.
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
  std::optional<ChatTemplate> chat;  // what the weights were trained with
  GenerationConfig generation;
  // The tokens that end a text, without repetition: that of the template, where its end is one token; those of
  // generation_config.json or, where that has none, the tokenizer's.
  std::vector<int32_t> ends;
};

// Returns what is known of weights with this tokenizer. Errors: of a file that cannot be read.
ModelUse use_of(const WeightSource& weights, const Tokenizer& tokenizer);

// Returns the folder that has these files: that of Hugging Face, or that of the run; "" where none is known.
std::string folder_of_use(const WeightSource& weights);

}  // namespace megalith
