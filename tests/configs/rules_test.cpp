// The rules between keys: one case breaks one rule, and its message names the key, the numbers and the way out.
#include "configs/config.h"
#include "configs/field_table.h"
#include "tests/configs/message_of.h"

namespace megalith {
namespace {

std::string refusal(const std::vector<std::string>& overrides) {
  return message_of([&] { parse_config("", "run.toml", overrides); });
}

void expect_refusal(const std::vector<std::string>& overrides, const std::string& message) {
  EXPECT_EQ(refusal(overrides), fmt::format("override `{}`: {}", overrides.front(), message));
}

TEST(Rules, DefaultsAreValid) { EXPECT_NO_THROW(validate(resolve(Config{}))); }

TEST(Rules, HeadsDivideHidden) {
  expect_refusal({"model.heads=7"}, "model.heads = 7 does not divide model.hidden = 768; these do: 1 2 3 4 6 8 12 16");
  EXPECT_NO_THROW(parse_config("", "run.toml", {"model.heads=16"}));
}

TEST(Rules, SequenceFitsTheContext) {
  expect_refusal({"batch.sequence_length=1025"},
                 "batch.sequence_length = 1025 is beyond model.context = 1024; shorten the one or raise the other");
  EXPECT_NO_THROW(parse_config("", "run.toml", {"batch.sequence_length=1024"}));
}

TEST(Rules, MicrobatchDividesTheBatch) {
  expect_refusal({"batch.microbatch_size=5", "batch.global_batch_size=12"},
                 "batch.microbatch_size = 5 does not divide batch.global_batch_size = 12; these do: 1 2 3 4 6 12");
}

TEST(Rules, LearningRate) {
  expect_refusal({"optimizer.min_learning_rate=0.1", "optimizer.learning_rate=0.01"},
                 "optimizer.min_learning_rate = 0.1 is above optimizer.learning_rate = 0.01; the decay only goes down");
  expect_refusal({"optimizer.warmup_steps=11", "optimizer.decay_steps=10"},
                 "optimizer.warmup_steps = 11 is beyond optimizer.decay_steps = 10, where the decay has ended; lower "
                 "the one or raise the other");
  EXPECT_NO_THROW(parse_config("", "run.toml", {"optimizer.warmup_steps=10", "optimizer.decay_steps=10"}));
  EXPECT_NO_THROW(parse_config("", "run.toml",
                               {"optimizer.warmup_steps=11", "optimizer.decay_steps=10", "optimizer.decay=constant"}));
}

TEST(Rules, ACutRunKeepsItsWarmUp) {
  EXPECT_NO_THROW(
      parse_config("", "run.toml", {"train.steps=2", "optimizer.warmup_steps=700", "optimizer.decay_steps=1000"}));
}

TEST(Rules, Tokenizer) {
  const std::string malformed =
      "is malformed; train: is followed by the number of tokens, 257 or more, as in train:4096";
  for (const char* text : {"train:", "train:256", "train:4k", "train:-300", "train:99999999999999999999"})
    expect_refusal({fmt::format("data.tokenizer={}", text)},
                   fmt::format("data.tokenizer = \"{}\" {}", text, malformed));
  expect_refusal({"model.vocab=4000", "data.tokenizer=train:4096"},
                 "model.vocab = 4000 is below the 4096 tokens of data.tokenizer = \"train:4096\"; 0 takes the "
                 "tokenizer's");
  EXPECT_NE(refusal({"model.vocab=256", "data.tokenizer=bytes"}).find("257 tokens"), std::string::npos);
  EXPECT_NO_THROW(parse_config("", "run.toml", {"model.vocab=4224", "data.tokenizer=train:4096"}));
}

TEST(Rules, Sharding) {
  expect_refusal({"parallel.sharded_data_parallel_degree=2", "parallel.sharding_strategy=no_shard"},
                 "parallel.sharded_data_parallel_degree = 2 has nothing to share under parallel.sharding_strategy = "
                 "\"no_shard\"; set 0, or another strategy");
  EXPECT_NO_THROW(parse_config("", "run.toml", {"parallel.sharded_data_parallel_degree=2"}));
}

TEST(Rules, LossScale) {
  expect_refusal({"precision.loss_scale=8"},
                 "precision.loss_scale = 8.0 has no use with precision.compute = \"fp32\"; set 0");
  EXPECT_NE(refusal({"precision.initial_loss_scale=0.5"}).find("is below precision.minimum_loss_scale = 1"),
            std::string::npos);
}

TEST(Rules, Run) {
  expect_refusal({"run.output="}, "run.output = \"\" is empty; name a folder, such as runs/first");
  expect_refusal({"checkpoint.resume="},
                 "checkpoint.resume = \"\" is empty; write auto, never or the path of a checkpoint");
  expect_refusal({"train.evaluate_every=10"},
                 "train.evaluate_every = 10 needs data.validation, which is empty; name a token file there, or set 0");
}

TEST(Rules, WhatIsNotAvailableIsRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {"parallel.tensor_parallel_degree=2", "1 is"},
      {"parallel.pipeline_parallel_degree=2", "1 is"},
      {"parallel.virtual_stages=2", "1 is"},
      {"parallel.active_microbatches=1", "0 is"},
      {"parallel.sequence_parallel=true", "false is"},
      {"parallel.hierarchical_allgather=true", "false is"},
      {"parallel.sharding_strategy=\"shard_grad_op\"", "\"full_shard\" and \"no_shard\" are"},
      {"parallel.sharding_strategy=\"shard_optimizer\"", "\"full_shard\" and \"no_shard\" are"},
      {"memory.activation_checkpointing=\"selective\"", "\"none\" and \"each\" are"},
      {"memory.activation_checkpointing=\"group_4\"", "\"none\" and \"each\" are"},
      {"memory.activation_checkpointing=\"contiguous\"", "\"none\" and \"each\" are"},
      {"memory.offload_activations=true", "false is"},
      {"memory.offload_optimizer=true", "false is"},
      {"precision.compute=\"fp16\"", "\"bf16\" and \"fp32\" are"},
      {"precision.master=\"bf16\"", "\"fp32\" is"},
      {"precision.moments=\"bf16\"", "\"fp32\" is"},
      {"precision.gradient_reduce=\"bf16\"", "\"fp32\" is"},
      {"precision.stochastic_rounding=true", "false is"},
  };
  for (const auto& [text, offer] : cases) {
    const size_t equals = text.find('=');
    EXPECT_NE(refusal({text}).find(fmt::format("{} = {} is not available yet; {}", text.substr(0, equals),
                                               text.substr(equals + 1), offer)),
              std::string::npos)
        << refusal({text});
  }
}

TEST(Rules, AConfigBuiltByHandIsCheckedAsWell) {
  Config config = resolve(Config{});
  config.model.heads = 0;
  EXPECT_EQ(message_of([&] { validate(config); }),
            "model.heads = 0 is out of range, expected an integer (heads, 1 to 1000000)");
}

TEST(Rules, AProblemOfTwoKeysNamesTheLineThatSetOne) {
  EXPECT_EQ(message_of([] { parse_config("[model]\nhidden = 768\nheads = 7\n", "run.toml"); }).rfind("run.toml:3: ", 0),
            0u);
  EXPECT_EQ(message_of([] { parse_config("[model]\nhidden = 100\n", "run.toml"); }).rfind("run.toml: ", 0), 0u)
      << "heads is a default: no line";
}

}  // namespace
}  // namespace megalith
