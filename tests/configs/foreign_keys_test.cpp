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
      EXPECT_TRUE(ours.contains(here.substr(begin + 1, end - begin - 1))) << here;
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
    EXPECT_NE(message_of([&] { parse_config("", "run.toml", {std::string(key) + "=1"}); }).find(" here"),
              std::string::npos)
        << key;
  EXPECT_EQ(foreign_key_message("parallel.placemnt"), "");
}

}  // namespace
}  // namespace megalith
