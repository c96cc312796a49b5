#include "trainer/train/samples.h"

#include <nlohmann/json.hpp>

#include "data/tokenizers/special_text.h"
#include "kernels/system/json.h"
#include "kernels/system/mix.h"
#include "trainer/job/agreement.h"
#include "trainer/step/sample_room.h"

namespace megalith {

namespace {

// Returns the number that selects the draws of a text.
uint64_t draws_of(const std::string& prompt, int64_t step) {
  uint64_t draws = mix(static_cast<uint64_t>(step) + 1);
  for (const char byte : prompt) draws = mix(draws + static_cast<uint8_t>(byte) + 1);
  return draws;
}

}  // namespace

TextSampler::TextSampler(const Config& config, const Session& session, const Tokenizer* tokenizer)
    : config_(config), session_(session), tokenizer_(tokenizer) {
  if (config.train.sample_every == 0) return;
  together(session, [&] {
    CHECK(
        tokenizer,
        "train.sample_every = {} writes texts, but there is no tokenizer; name its folder in data.tokenizer, or set 0",
        config.train.sample_every);
    if (session.rank() == 0) prompts_ = sample_prompts(config.train);
  });
  prompts_ = from_cbor(session.broadcast_text(to_cbor(prompts_))).get<std::vector<std::string>>();
  for (const std::string& prompt : prompts_) {
    std::vector<int32_t>& ids = ids_.emplace_back(tokenizer->beginning());
    encode_with_specials(*tokenizer, prompt, ids);
    if (ids.empty()) ids.push_back(tokenizer->end_of_text());  // texts follow one another in training
  }
}

std::vector<SampledText> TextSampler::write(Trainer& trainer, int64_t step) const {
  const TrainConfig& train = config_.train;
  std::vector<SampledText> samples;
  Generation how{.tokens = train.sample_tokens,
                 .sampling = {.temperature = train.sample_temperature,
                              .top_k = train.sample_top_k,
                              .seed = static_cast<uint64_t>(train.seed),
                              .top_p = train.sample_top_p}};
  for (const std::string& prompt : prompts_) {
    samples.push_back({.prompt = prompt, .text = {}});
    how.draws.push_back(draws_of(prompt, step));
  }
  continue_texts(*trainer.decoder(), session_, *tokenizer_, ids_, how,
                 {.out = [&](size_t prompt, int64_t, std::string_view text) { samples[prompt].text += text; },
                  .not_finite = [&](size_t prompt, int64_t) { samples[prompt].finite = false; }});
  return samples;
}

}  // namespace megalith
