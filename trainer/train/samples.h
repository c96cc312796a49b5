// The texts that a run writes during training (train.sample_every), with the trainer's own weights in the layout of the
// training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"
#include "data/tokenizers/tokenizer.h"
#include "trainer/inference/continued_texts.h"
#include "trainer/step/trainer.h"

namespace megalith {

struct SampledText {
  std::string prompt, text;
  bool finite = true;  // false: the text ends where logits were not finite
};

class TextSampler {
 public:
  // Collective; the arguments must outlive it. The tokenizer may be null if train.sample_every is 0. JobError: it is
  // null otherwise, or a file of prompts cannot be read.
  TextSampler(const Config& config, const Session& session, const Tokenizer* tokenizer);

  // Collective. Returns, on rank 0, a text for each prompt after `step` steps: a pure function of weights, train.seed,
  // step, prompt and the options of [train].
  std::vector<SampledText> write(Trainer& trainer, int64_t step) const;

 private:
  const Config& config_;
  const Session& session_;
  const Tokenizer* tokenizer_;
  std::vector<std::string> prompts_;
  std::vector<std::vector<int32_t>> ids_;
};

}  // namespace megalith
