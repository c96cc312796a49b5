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

  // Without a watchdog where `waits`: ranks that wait for somebody who types are not behind.
  CommunicationConfig communication(bool waits = false) const;
  // Collective.
  Inference open(const Session& session) const;
};

// Adds all options but the one that names the model.
void add_model_options(CLI::App* app, ModelArguments& model);

// Adds the options that choose a token. Error in check_sampling(): a value that has no meaning.
void add_sampling(CLI::App* app, Sampling& sampling);
void check_sampling(const Sampling& sampling);

}  // namespace megalith
