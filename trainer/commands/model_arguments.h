// The options of commands that use a trained model.
#pragma once

#include <string>
#include <vector>

#include "trainer/commands/command.h"
#include "trainer/inference/inference.h"

namespace megalith {

struct ModelArguments {
  std::string checkpoint, tokenizer;
  Device device = Device::automatic;
  SpecialTexts special_texts = SpecialTexts::ids;
  std::vector<std::string> overrides;

  // `waits`: without a watchdog, since ranks that wait for a user who types are not stuck.
  CommunicationConfig communication(bool waits = false) const;
  // Collective.
  Inference open(const Session& session) const;
};

// Adds the model: the first word, or --checkpoint.
void add_model(CLI::App* app, ModelArguments& model);
// Adds all options except the model.
void add_model_options(CLI::App* app, ModelArguments& model);

// The options that choose a token and end a text.
struct SamplingArguments {
  Sampling sampling = {};
  int64_t least = 0;
  bool shows_specials = false;
  // Null before add_sampling().
  const CLI::Option *temperature = nullptr, *top_k = nullptr, *top_p = nullptr, *penalty = nullptr,
                    *min_new_tokens = nullptr;

  // Error: a value without a meaning.
  void check() const;
  // Takes the values of generation_config.json for options that were not given. Returns up to two sentences: one names
  // the options that it set, one the keys that are not obeyed.
  std::vector<std::string> take_defaults(const GenerationConfig& config);
};
void add_sampling(CLI::App* app, SamplingArguments& arguments);

}  // namespace megalith
