// Keys of other programs are answered with ours.
#include "configs/foreign_keys.h"

#include <gtest/gtest.h>

#include <set>

#include "configs/config.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

TEST(ForeignKeys, NameKeysThatThereAre) {
  const auto ours = key_values(Config{});
  std::set<std::string> bare, seen;
  for (const auto& [key, value] : ours) bare.insert(key.substr(key.find('.') + 1));
  for (const ForeignKey& foreign : foreign_keys()) {
    EXPECT_TRUE(seen.insert(std::string(foreign.key)).second) << foreign.key << " is there twice";
    EXPECT_FALSE(bare.contains(std::string(foreign.key))) << foreign.key << " is a key of ours";
    const std::string here(foreign.here);
    for (size_t begin = here.find('`'); begin != std::string::npos;) {
      const size_t end = here.find('`', begin + 1);
      ASSERT_NE(end, std::string::npos) << here;
      const std::string name = here.substr(begin + 1, end - begin - 1);
      const bool is_command = name.starts_with("megalith ") || name.starts_with("wandb ") || name.starts_with("hf ");
      EXPECT_TRUE(is_command || ours.contains(name)) << here;
      begin = here.find('`', end + 1);
    }
  }
}

TEST(ForeignKeys, AreRefusedWithTheNameOfOurs) {
  const auto refusal = [](const char* toml) { return message_of([&] { parse_config(toml, "run.toml"); }); };
  EXPECT_EQ(refusal("[parallel]\nhybrid_shard_degree = 8\n"),
            "run.toml:2: unknown key `parallel.hybrid_shard_degree`: `hybrid_shard_degree` of SageMaker is "
            "`parallel.sharded_data_parallel_degree` here");
  EXPECT_EQ(refusal("tensor-model-parallel-size = 8\n"),
            "run.toml:1: unknown key `tensor-model-parallel-size`: `tensor_model_parallel_size` of Megatron-LM is "
            "`parallel.tensor_parallel_degree` here");
  for (const char* key : {"parallel.partitions", "parallel.microbatches", "memory.sm_activation_offloading",
                          "parallel.tensor_parallel_seed", "precision.fp8", "parallel.ddp",
                          "parallel.shard_optimizer_state", "batch.gradient_accumulation_steps"})
    EXPECT_NE(message_of([&] { parse_config("", "run.toml", {std::string(key) + "=1"}); }).find("` of "),
              std::string::npos)
        << key;
  EXPECT_EQ(foreign_key_message("parallel.placemnt"), "");
}

// What users of torchtitan, LitGPT, axolotl, TRL, PEFT and transformers type out of habit.
TEST(ForeignKeys, HabitsAreAnswered) {
  const auto answer = [](const char* typed) { return message_of([&] { parse_config("", "run.toml", {typed}); }); };
  const auto expect = [&](const char* typed, const char* words) {
    EXPECT_NE(answer(typed).find(words), std::string::npos) << typed << ": " << answer(typed);
  };
  expect("training.seq_len=2048", "`seq_len` of torchtitan is `batch.sequence_length` here");
  expect("parallelism.data_parallel_shard_degree=8", "`parallel.sharded_data_parallel_degree`");
  expect("parallelism.tensor_parallel_degree=2", "did you mean `parallel.tensor_parallel_degree`?");
  expect("checkpoint.interval=500", "`checkpoint.every`");
  expect("train.max_tokens=3e12", "`max_tokens` of LitGPT is not set: `train.steps` times");
  expect("lora_r=8", "`adapter.rank`");
  expect("num_train_epochs=3", "`train.steps` counts updates");
  expect("lr_scheduler_type=cosine", "`optimizer.decay`");
  expect("report_to=wandb", "metrics.jsonl");
  expect("wandb_log=True", "`run.tensorboard`");
  expect("eval_only=True", "`megalith evaluate");
  expect("grad_clip=1.0", "`optimizer.gradient_clip`");
  expect("model.sliding_window=4096", "attention always reads the whole sequence");
  expect("model.experts=8", "not supported");
  expect("seed=1337", "did you mean `data.seed` or `train.seed`?");
  expect("assistant_only_loss=true", "`megalith prepare`");
}

}  // namespace
}  // namespace megalith
