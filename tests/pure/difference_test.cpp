// The law by which `verify` compares, without any run.
#include "trainer/verify/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/message_of.h"
#include "trainer/verify/verify.h"

namespace megalith {
namespace {

using Floats = std::vector<float>;
constexpr double infinity = std::numeric_limits<double>::infinity();

Floats floats(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(TensorsOfAStep, AreInOrderOfComputation) {
  Config config;
  config.model = {.layers = 2, .hidden = 6, .heads = 2, .vocab = 11, .context = 5};
  config.batch = {.sequence_length = 4, .global_batch_size = 3, .microbatch_size = 1};
  std::vector<std::string> names;
  for (const ComparedTensor& t : tensors_of_step(config)) names.push_back(t.name);
  const std::vector<std::string> first{"embedding", "h.0",   "h.1",         "loss",       "mean loss",
                                       "d h.1",     "d h.0", "d embedding", "d ln_f.bias"};
  ASSERT_GT(names.size(), first.size());
  EXPECT_EQ(std::vector(names.begin(), names.begin() + static_cast<long>(first.size())), first);
  const auto norm = std::find(names.begin(), names.end(), "gradient norm");
  ASSERT_NE(norm, names.end());
  EXPECT_EQ(norm[-1], "d wte.weight");
  EXPECT_EQ(norm[1], "wte.weight");
  EXPECT_EQ(names.back(), "ln_f.bias");
  EXPECT_EQ(names.size(), 9u + 2 * 28 - 1 + 1) << "of 2 layers there are 28 parameters, each with its gradient";
  EXPECT_EQ(tensors_before(config).size(), 28u);
  EXPECT_EQ(tensors_of_step(config)[1].shape, (std::vector<int64_t>{12, 6}));
}

TEST(WholeTensor, IsPutTogetherFromColumnsAndShards) {
  // 0 1 2 3
  // 4 5 6 7
  WholeTensor whole("w", {2, 4});
  const TensorShard left{"w", {2, 4}, {0, 2}, {0, 4}}, right_first{"w", {2, 4}, {2, 4}, {0, 1}},
      right_rest{"w", {2, 4}, {2, 4}, {1, 4}};
  whole.add(0, std::vector{left, right_first}, Floats{0, 1, 4, 5, 2});
  EXPECT_EQ(whole.fault(), "row 0, column 3 is on no rank, and 3 elements in all");
  whole.add(1, std::vector{right_rest}, Floats{3, 6, 7});
  EXPECT_EQ(whole.fault(), "");
  EXPECT_EQ(floats(whole.values()), (Floats{0, 1, 2, 3, 4, 5, 6, 7}));
  Floats again;
  whole.append_shard(again, left);
  whole.append_shard(again, right_rest);
  EXPECT_EQ(again, (Floats{0, 1, 4, 5, 3, 6, 7}));
}

TEST(WholeTensor, NamesRanksThatDisagree) {
  WholeTensor whole("v", {3});
  const std::vector<TensorShard> all{whole_tensor("v", {3})}, end{flat_shard("v", {3}, {1, 3})};
  whole.add(0, all, Floats{1, 2, 0});
  whole.add(1, end, Floats{2, 0});
  EXPECT_EQ(whole.fault(), "");
  whole.add(2, end, Floats{2.5, 0});
  whole.add(3, all, Floats{7, 2, 0});
  EXPECT_EQ(whole.fault(), "element 1 is 2 on rank 0 and 2.5 on rank 2");
  EXPECT_EQ(floats(whole.values()), (Floats{1, 2, 0}));
}

TEST(WholeTensor, ComparesBits) {
  WholeTensor whole("v", {1});
  const std::vector<TensorShard> all{whole_tensor("v", {1})};
  whole.add(0, all, Floats{0.0f});
  whole.add(1, all, Floats{-0.0f});
  EXPECT_EQ(whole.fault(), "element 0 is 0 on rank 0 and -0 on rank 1");
}

TEST(WholeTensor, RefusesValuesThatDoNotFit) {
  WholeTensor whole("v", {3});
  const std::vector<TensorShard> all{whole_tensor("v", {3})};
  EXPECT_NE(message_of([&] { whole.add(0, all, Floats{1, 2}); }).find("2 values came with it"), std::string::npos);
  EXPECT_NE(message_of([&] { whole.add(0, all, Floats{1, 2, 3, 4}); }).find("1 values of rank 0"), std::string::npos);
}

TEST(Difference, IsRelativeToTheLargest) {
  const Difference d = largest_difference(Floats{1, -4, 2}, Floats{1.25f, -4.5f, 2}, 0.125);
  EXPECT_EQ(d.at, 1);
  EXPECT_EQ(d.a, -4);
  EXPECT_EQ(d.b, -4.5);
  EXPECT_EQ(d.size, 0.125);
  EXPECT_EQ(d.part, 1);
  EXPECT_FALSE(d.exceeds());
  EXPECT_TRUE(largest_difference(Floats{1, -4, 2}, Floats{1.25f, -4.5f, 2}, 0.1249).exceeds());
}

TEST(Difference, OfEqualTensorsIsNone) {
  const Difference d = largest_difference(Floats{0, 0}, Floats{0, -0.0f}, 0);
  EXPECT_EQ(d.size, 0);
  EXPECT_FALSE(d.exceeds());
}

TEST(Difference, WhereNothingIsAllowedAnyExceeds) {
  const float next = std::nextafter(1.0f, 2.0f);
  EXPECT_TRUE(largest_difference(Floats{1, 1}, Floats{1, next}, 0).exceeds());
  const Difference of_zeros = largest_difference(Floats{0, 0}, Floats{0, 1e-30f}, 1e-3);
  EXPECT_TRUE(of_zeros.exceeds());
  EXPECT_EQ(of_zeros.at, 1);
  EXPECT_EQ(of_zeros.size, infinity);
}

TEST(Difference, ThatIsNoNumberExceeds) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const auto& [a, b] :
       std::vector<std::pair<float, float>>{{nan, 1}, {1, nan}, {nan, nan}, {inf, inf}, {1, inf}}) {
    const Difference d = largest_difference(Floats{1, a, 2}, Floats{1, b, 2}, 100);
    EXPECT_TRUE(d.exceeds()) << a << " against " << b;
    EXPECT_EQ(d.at, 1);
  }
}

TEST(Difference, IsWeighedByWhatIsAllowed) {
  // The second differs more, but more is allowed there.
  const Difference d = largest_difference(Floats{10, 10}, Floats{10.5, 12}, 0.01, Floats{0, 9.9f});
  EXPECT_EQ(d.at, 0);
  EXPECT_DOUBLE_EQ(d.size, 0.05);
  EXPECT_DOUBLE_EQ(d.tolerance, 0.01);
  EXPECT_TRUE(d.exceeds());
  EXPECT_FALSE(largest_difference(Floats{10, 10}, Floats{10, 12}, 0.01, Floats{0, 2}).exceeds());
  EXPECT_TRUE(largest_difference(Floats{10, 10}, Floats{10, 12.2f}, 0.01, Floats{0, 2}).exceeds());
}

TEST(UncertainUpdate, IsTheRateOverWhatIsKnownOfTheGradient) {
  UncertainUpdate update;
  EXPECT_TRUE(update.allowance().empty());
  // Gradients are known to 0.5.
  update.add(Floats{-8, 1, 0.125f, 0}, 0.0625, 0.5);
  EXPECT_EQ(floats(update.allowance()), (Floats{0.03125f, 0.25f, 1, 1}));
  // Now to 1 at worst; the largest gradients so far count.
  update.add(Floats{-16, 0, 4, 0}, 0.0625, 0.25);
  EXPECT_EQ(floats(update.allowance()), (Floats{0.015625f, 0.25f, 0.0625f, 0.5f}));
}

TEST(UncertainUpdate, OfNoGradientIsNone) {
  UncertainUpdate update;
  update.add(Floats{0, 0}, 0.1, 1);
  EXPECT_EQ(floats(update.allowance()), (Floats{0, 0}));
}

TEST(Place, IsRowAndColumn) {
  EXPECT_EQ(describe_place({3, 4}, 6), "row 1, column 2");
  EXPECT_EQ(describe_place({12, 1}, 6), "row 6");
  EXPECT_EQ(describe_place({12}, 6), "element 6");
}

TEST(Against, TakesKeysOfTheLayoutOnly) {
  check_against({"parallel.tensor_parallel_degree=2", " memory.lm_head_chunks = 2", "precision.compute=bf16",
                 "batch.microbatch_size=1", "run.device=cpu"});
  for (const char* text : {"model.layers=3", "model.dropout=0.5", "batch.global_batch_size=4", "data.seed=2",
                           "optimizer.learning_rate=1", "train.seed=3", "checkpoint.init_from=x", "run.output=x"}) {
    const std::string message = message_of([&] { check_against({"parallel.ranks_per_node=1", text}); });
    EXPECT_TRUE(message.starts_with(std::string("--against ") + text)) << message;
    EXPECT_NE(message.find("changes the results of a step, not only their computation"), std::string::npos) << message;
  }
  EXPECT_NE(message_of([] { check_against({}); }).find("nothing to verify"), std::string::npos);
}

}  // namespace
}  // namespace megalith
