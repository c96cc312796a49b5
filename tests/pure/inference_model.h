// A model of random weights as a Hugging Face folder with the byte tokenizer beside it, as a user would bring one, and
// its plain twin.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>

#include "tests/checkpoints/gpt2.h"
#include "tests/framed_bytes.h"
#include "tests/message_of.h"
#include "tests/pure/plain_model.h"
#include "trainer/inference/inference.h"
#include "trainer/session/single_rank.h"

namespace megalith {

inline constexpr int32_t end_of_bytes = 256;

inline ModelConfig model_of_bytes() {
  return {.layers = 2, .hidden = 15, .heads = 3, .vocab = 257, .context = 12, .dropout = 0};
}

// Weights in memory, served as a checkpoint serves them.
class InMemory : public TensorSource {
 public:
  explicit InMemory(const PlainModel& plain) : plain_(plain) {
    for (const StoredParameter& p : gpt2_parameters(plain.model))
      shapes_[std::string(parameters_path) + p.name] = p.shape;
  }
  std::vector<int64_t> shape(const std::string& name) const override { return shapes_.at(name); }
  void read(const TensorShard& wanted, float* out) override {
    const std::vector<double>& values = plain_.weights.at(wanted.name.substr(parameters_path.size()));
    for (const CopyRun& run : copy_runs(whole_tensor(wanted.name, wanted.shape), wanted))
      for (int64_t i = 0; i < run.length; i++)
        out[run.destination + i] = static_cast<float>(values[static_cast<size_t>(run.source + i)]);
  }

 private:
  const PlainModel& plain_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

class InferenceTest : public testing::Test {
 protected:
  InferenceTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith_inference_XXXXXX").string();
    CHECK(mkdtemp(pattern.data()), "cannot make {}", pattern);
    folder_ = pattern;
    std::filesystem::create_directory(bytes());
    make_byte_tokenizer()->save(bytes());
    plain_ = random_model(model_of_bytes());
  }
  ~InferenceTest() override { std::filesystem::remove_all(folder_); }

  std::string bytes() const { return folder_ + "/bytes"; }

  // The end of a text is unlikely, so that texts go on.
  static PlainModel random_model(const ModelConfig& model) {
    std::mt19937 random(5);
    PlainModel plain{.model = model, .weights = {}};
    for (const StoredParameter& p : gpt2_parameters(model)) {
      std::vector<double>& values = plain.weights[p.name];
      values.resize(
          static_cast<size_t>(std::accumulate(p.shape.begin(), p.shape.end(), int64_t{1}, std::multiplies<>())));
      const bool norm = p.shape.size() == 1 && p.name.ends_with("weight");
      std::normal_distribution<float> normal(norm ? 1.0f : 0.0f, 0.4f);
      for (double& v : values) v = static_cast<double>(normal(random));
    }
    std::vector<double>& table = plain.weights.at("wte.weight");
    std::fill(table.end() - model.hidden, table.end(), 0.0);
    return plain;
  }
  std::string exported(const PlainModel& plain) const {
    InMemory source(plain);
    const std::string folder = fmt::format("{}/model{}", folder_, exports_++);
    export_hugging_face(source, plain.model, gpt2_parameters(plain.model), folder);
    return folder;
  }

  static std::string text_of(Inference& inference, const std::string& prompt, int64_t count, const Sampling& sampling) {
    return texts_of(inference, {prompt}, {.tokens = count, .sampling = sampling})[0][0];
  }
  // Prompts with what was added to each, by prompt and sample.
  static std::vector<std::vector<std::string>> texts_of(Inference& inference, const std::vector<std::string>& prompts,
                                                        const Generation& how) {
    std::vector<std::vector<std::string>> texts;
    for (const std::string& prompt : prompts)
      texts.push_back(std::vector<std::string>(static_cast<size_t>(how.samples), prompt));
    size_t ended = 0;
    inference.generate(
        prompts, how,
        [&](size_t prompt, int64_t sample, std::string_view shard) {
          texts[prompt][static_cast<size_t>(sample)] += shard;
        },
        [&](size_t, int64_t) { ended++; });
    EXPECT_EQ(ended, prompts.size() * static_cast<size_t>(how.samples));
    return texts;
  }
  Inference open(const std::string& path, const std::string& tokenizer = "",
                 const std::vector<std::string>& options = {}) const {
    return {path, tokenizer, options, alone_};
  }
  // The twin's logits of the token that follows text[0, end), where the text's first `start` tokens were the prompt:
  // whenever the context is full, its last half is what a text goes on from.
  std::vector<double> next_logits(const std::string& text, size_t end, size_t start) const {
    const auto context = static_cast<size_t>(plain_.model.context);
    size_t begin = start - std::min(start, context);
    for (size_t i = start; i <= end; i++)
      if (i - begin > context) begin = i - context / 2;
    std::vector<int32_t> ids;
    for (size_t i = begin; i < end; i++) ids.push_back(static_cast<uint8_t>(text[i]));
    return plain_.logits(ids, {}).back();
  }
  // Ids, the likeliest first.
  static std::vector<size_t> ranking(const std::vector<double>& logits) {
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    return order;
  }

  SingleRank alone_;
  std::string folder_;
  PlainModel plain_;
  mutable int exports_ = 0;
};

}  // namespace megalith
