// A shrunk config has every mechanism of the large one.
#include "configs/shrink.h"

#include <gtest/gtest.h>

#include "configs/degrees.h"
#include "tests/message_of.h"

namespace megalith {
namespace {

Config large() {
  Config config;
  config.model = {.layers = 64, .hidden = 4096, .heads = 32, .vocab = 50257, .context = 2048, .dropout = 0};
  config.batch = {.sequence_length = 2048, .global_batch_size = 512, .microbatch_size = 4};
  config.parallel.tensor_parallel_degree = 8;
  config.parallel.pipeline_parallel_degree = 4;
  config.parallel.virtual_stages = 2;
  config.parallel.ranks_per_node = 8;
  config.parallel.max_live_parameters = 1'000'000'000;
  config.parallel.replicate_below = 10'000;
  config.parallel.sharding_strategy = ShardingStrategy::full_shard;
  config.parallel.sharded_data_parallel_degree = 4;
  return resolve(config);
}

TEST(Shrink, KeepsEveryAxisThatThereIs) {
  const Config config = large();  // 8 x 4 x 4 x 2 on 256 ranks
  const Config small = shrink(config, 256, 16);
  const Degrees d = degrees(small, 16);
  EXPECT_EQ(d.tensor, 2);
  EXPECT_EQ(d.pipeline, 2);
  EXPECT_EQ(d.shard, 2);
  EXPECT_EQ(d.data, 2);
  EXPECT_EQ(small.parallel.virtual_stages, 2);
  EXPECT_EQ(small.model.layers, 8);
  EXPECT_EQ(small.parallel.ranks_per_node, 2)
      << "a shard group of 2 x 2 ranks spans two nodes, as one of 4 x 8 spans four";
  EXPECT_GT(small.parallel.max_live_parameters, 0);
  EXPECT_LT(small.parallel.max_live_parameters, 100'000);
  EXPECT_EQ(small.parallel.replicate_below, 1) << "a bias of 4096 was replicated, a matrix was not";
  // 512 sequences on 8 groups in microbatches of 4 are 16 of them; 3 x 2 x 2 fill the pipeline three times.
  const auto microbatches = [&](const Config& c) {
    return c.batch.global_batch_size / (c.batch.microbatch_size * d.shard * d.data);
  };
  EXPECT_EQ(microbatches(small), 12);
  Config fewer = config;
  fewer.batch.global_batch_size = 9 * 8 * 4;
  EXPECT_EQ(microbatches(shrink(fewer, 256, 16)), 9) << "as they are";
  EXPECT_EQ(small.parallel.sharding_strategy, ShardingStrategy::full_shard);
  EXPECT_EQ(small.run.output, "runs/default-shrunk");
  EXPECT_EQ(small.checkpoint.directory, "runs/default-shrunk/checkpoints") << "beside those of the large run";
  EXPECT_NO_THROW(validate(small));
}

// Heads that share keys still do, and so do ranks that share a head.
TEST(Shrink, KeyValueHeadsStayShared) {
  struct Case {
    int64_t heads, ranks, small;  // of 8 tensor ranks, so many in all, and of what is left of them
  };
  for (const auto& [heads, ranks, small] :
       {Case{32, 128, 8}, {16, 128, 4}, {8, 128, 4}, {4, 128, 2}, {4, 64, 1}, {2, 128, 1}, {1, 64, 1}}) {
    Config config = large();
    config.model.key_value_heads = heads;
    const Config shrunk = shrink(config, 256, ranks);
    const int64_t tensor = shrunk.parallel.tensor_parallel_degree;
    EXPECT_EQ(tensor, ranks == 128 ? 4 : 2);
    EXPECT_EQ(shrunk.model.kv_heads(), small) << heads << " on " << ranks;
    EXPECT_EQ(shrunk.model.kv_heads() < tensor, heads < 8);
    EXPECT_EQ(shrunk.model.kv_heads() < shrunk.model.heads, heads < 32);
  }
}

TEST(Shrink, TheLargestDegreeGivesWayFirst) {
  Config config = large();
  config.parallel.pipeline_parallel_degree = 1;
  config.parallel.virtual_stages = 1;
  const Degrees d = degrees(shrink(config, 256, 32), 32);  // 8 x 4 x 8
  EXPECT_EQ(d.tensor * d.shard * d.data, 32);
  EXPECT_EQ(d.shard, 4);
}

TEST(Shrink, SaysWhatDoesNotGo) {
  const std::string message = message_of([] { shrink(large(), 256, 8); });
  EXPECT_NE(message_of([] { shrink(large(), 256, 512); }).find("for 256 ranks, fewer than 512"), std::string::npos);
  EXPECT_NE(message_of([] { shrink(large(), 256, 24); }).find("to 16 ranks but not to 24"), std::string::npos);
  EXPECT_NE(message.find("does not shrink to 8 ranks; 16 keep all of it"), std::string::npos) << message;
}

}  // namespace
}  // namespace megalith
