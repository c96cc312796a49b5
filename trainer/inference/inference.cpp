#include "trainer/inference/inference.h"

#include <algorithm>
#include <array>

#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/job/agreement.h"

namespace megalith {

namespace {

void check_option(const std::string& option) {
  constexpr std::array<const char*, 6> keys{"parallel.",          "communication.",        "precision.compute",
                                            "precision.residual", "memory.lm_head_chunks", "run.device"};
  CHECK(std::ranges::any_of(keys, [&](const char* key) { return option.starts_with(key); }),
        "override `{}`: a trained model accepts options of [parallel] and [communication], precision.compute, "
        "precision.residual, memory.lm_head_chunks and run.device",
        option);
}

// Returns a config with the model, the layout and the compute type, which is all that a forward pass uses.
Config layout_of(const ModelConfig& model, const std::vector<std::string>& options) {
  for (const std::string& option : options) check_option(option);
  std::string shape = "[model]\n";
  for (const std::string& key : shape_keys()) shape += fmt::format("{} = {}\n", key, shape_value(model, key));
  shape += fmt::format("[batch]\nsequence_length = {}", model.context);
  Config config = parse_config(shape, "the model", options);
  if (config.precision.compute == ComputeType::bf16) config.precision.master = StorageType::bf16;
  config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
  return config;
}

}  // namespace

Inference::Inference(const std::string& path, const std::string& tokenizer, const std::vector<std::string>& options,
                     const Session& session, SpecialTexts special_texts)
    : session_(session), special_texts_(special_texts) {
  together(session, [&] {
    weights_ = open_weights(path);
    const std::string& tokenizer_path = tokenizer.empty() ? weights_.tokenizer : tokenizer;
    if (!tokenizer_path.empty()) tokenizer_ = load_tokenizer(tokenizer_path);
    CHECK(!tokenizer_ || tokenizer_->vocab_size() <= weights_.model.vocab,
          "the tokenizer in {} has {} ids, but the model in {} has {}; name the tokenizer it was trained with by "
          "--tokenizer",
          tokenizer_path, tokenizer_->vocab_size(), weights_.path, weights_.model.vocab);
    if (!tokenizer.empty() && tokenizer_)
      check_same_tokenizer(weights_.path, weights_, hash_of(*tokenizer_), "--tokenizer " + tokenizer);
    if (tokenizer_) use_ = use_of(weights_, *tokenizer_);
    layout_ = layout_of(weights_.model, options);
  });
  device_ = choose_device(layout_, session);
}

const ModelUse& Inference::use() const {
  tokenizer();
  return use_;
}

const Tokenizer& Inference::tokenizer() const {
  CHECK(tokenizer_, "{} does not name a tokenizer; give its folder with --tokenizer", weights_.path);
  return *tokenizer_;
}

Config Inference::config_for(int64_t T, int64_t microbatch) const {
  Config config = layout_;
  config.batch = {.sequence_length = T, .global_batch_size = microbatch, .microbatch_size = microbatch};
  validate(config);
  return config;
}

}  // namespace megalith
