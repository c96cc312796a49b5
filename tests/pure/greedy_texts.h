// Texts that a model goes on with, always by the likeliest token, as the references of ../shared/reference/families
// have them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "tests/pure/small_run.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/inference/engine.h"
#include "trainer/parallel/decoder.h"
#include "trainer/session/session.h"

namespace megalith {

inline int32_t likeliest(const std::vector<float>& logits, size_t row, int64_t vocab) {
  const auto begin = logits.begin() + static_cast<ptrdiff_t>(row) * vocab;
  return static_cast<int32_t>(std::max_element(begin, begin + vocab) - begin);
}

// A model, split over so many tensor-parallel ranks, all there are, with places for texts of its whole context.
class Speaker {
 public:
  Speaker(const WeightSource& weights, int64_t places, const Session& session, int64_t tensor = 1)
      : config_(config_of(weights, tensor)) {
    const auto build = [&](const Plan& plan, Runtime& runtime) {
      return std::make_unique<Decoder>(plan, runtime, places, config_.model.context);
    };
    const auto rehearse = [&](Decoder& decoder, const Plan&) {
      std::vector<float> logits;
      decoder.begin(0, std::vector<int32_t>(static_cast<size_t>(config_.model.context)));
      decoder.read_logits(logits);
      std::vector<Decoder::Next> next;
      for (int64_t place = 0; place < places; place++) next.push_back({place, config_.model.context - 1, 0});
      decoder.advance(next);
      decoder.read_logits(logits);
    };
    engine_.emplace(config_, session, World::cpu, 1, *weights.tensors, build, rehearse);
  }
  int64_t vocab() const { return config_.model.vocab; }

  // Returns the logits after the last token.
  std::vector<float> begin(int64_t place, std::span<const int32_t> tokens) {
    engine_->worker->begin(place, tokens);
    return logits();
  }
  std::vector<float> advance(const std::vector<Decoder::Next>& next) {
    engine_->worker->advance(next);
    return logits();
  }

 private:
  static Config config_of(const WeightSource& weights, int64_t tensor) {
    Config config;
    config.parallel.tensor_parallel_degree = tensor;
    config.model = weights.model;
    config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
    config = resolve(config);
    config.batch.global_batch_size = 1;
    return config;
  }
  std::vector<float> logits() {
    std::vector<float> logits;
    engine_->worker->read_logits(logits);
    return logits;
  }

  Config config_;
  std::optional<Engine<Decoder>> engine_;
};

inline void expect_greedy_texts(const WeightSource& weights, const nlohmann::json& texts, const Session& session,
                                int64_t tensor = 1) {
  const auto places = static_cast<int64_t>(texts.size());
  Speaker speaker(weights, places, session, tensor);
  // All texts go on side by side, each from where its prompt ends.
  std::vector<std::vector<int32_t>> prompts, found(static_cast<size_t>(places));
  for (int64_t place = 0; place < places; place++) {
    prompts.push_back(texts[static_cast<size_t>(place)].at("prompt").get<std::vector<int32_t>>());
    found[static_cast<size_t>(place)].push_back(likeliest(speaker.begin(place, prompts.back()), 0, speaker.vocab()));
  }
  for (int turn = 1; turn < 60; turn++) {
    std::vector<Decoder::Next> next;
    for (size_t place = 0; place < found.size(); place++)
      next.push_back({static_cast<int64_t>(place),
                      static_cast<int64_t>(prompts[place].size() + found[place].size()) - 1, found[place].back()});
    const std::vector<float> logits = speaker.advance(next);
    for (size_t place = 0; place < found.size(); place++)
      found[place].push_back(likeliest(logits, place, speaker.vocab()));
  }
  ASSERT_EQ(places, 5);
  for (size_t place = 0; place < found.size(); place++)
    EXPECT_EQ(found[place], texts[place].at("continuation").get<std::vector<int32_t>>()) << place;
}

}  // namespace megalith
