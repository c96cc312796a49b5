// What is not finite is not lost on the way, and never becomes an update.
#include <gtest/gtest.h>

#include "kernels/activation/gelu.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/norm/layernorm.h"
#include "kernels/tensor/finite.h"
#include "kernels/update/adamw.h"
#include "kernels/update/decide_update.h"
#include "tensor_of.h"

namespace megalith::test {
namespace {

TEST(NotANumber, ReachesTheLoss) {
  Stream s(World::cpu);
  for (float bad : {nan, infinity})
    for (int64_t V : {3, 65, 5000})
      for (int64_t where : {int64_t{0}, V / 2, V - 1}) {
        std::vector<float> logits(size_t(2 * V), 0.5f), losses(2);
        std::vector<int32_t> targets{1, 1};
        logits[size_t(where)] = bad;
        launch(s, CrossEntropyForward{.losses = of(losses, {2}),
                                      .logits = of(logits, {2, V}),
                                      .targets = of(targets, {2}),
                                      .part = whole_vocabulary(V)});
        EXPECT_FALSE(std::isfinite(losses[0])) << bad << " at " << where << " of " << V;
        EXPECT_TRUE(std::isfinite(losses[1]));
        launch(s, CrossEntropyForwardBackward{.losses = of(losses, {2}),
                                              .logits = of(logits, {2, V}),
                                              .targets = of(targets, {2}),
                                              .part = whole_vocabulary(V),
                                              .scale = 1});
        EXPECT_FALSE(std::isfinite(losses[0]));
        EXPECT_TRUE(std::isnan(logits[0])) << "gradient";
        EXPECT_TRUE(std::isfinite(logits[size_t(V)]));
      }
}

template <class Bits>
void expect_counted(DType dtype, Bits bad, Bits good) {
  std::vector<Bits> values(200'003, bad);
  const int64_t n = std::ssize(values);
  EXPECT_EQ(count_not_finite(values.data(), dtype, n), n);
  EXPECT_EQ(count_not_finite(values.data() + 1, dtype, n - 2), n - 2);
  for (size_t i = 0; i < values.size(); i += 7) values[i] = good;
  EXPECT_EQ(count_not_finite(values.data(), dtype, n), n - (n + 6) / 7);
  EXPECT_EQ(count_not_finite(values.data(), dtype, 0), 0);
}

// More of them than a number of their size counts; the least that is not finite, and the greatest that is.
TEST(NotANumber, IsCountedHoweverOftenItIsThere) {
  expect_counted<uint32_t>(DType::f32, 0xff800000u, 0x7f7fffffu);
  expect_counted<uint16_t>(DType::bf16, 0xff80u, 0x7f7fu);
  expect_counted<uint16_t>(DType::f16, 0xfc00u, 0x7bffu);
  expect_counted<uint64_t>(DType::f64, 0xfff0000000000000u, 0x7fefffffffffffffu);
}

TEST(NotANumber, MinusInfinityIsAProbabilityOfZero) {
  Stream s(World::cpu);
  const int64_t V = 5000;
  std::vector<float> logits(size_t(V), -infinity), losses(1);
  std::vector<int32_t> targets{4321};
  logits[4321] = logits[7] = 1;
  launch(s, CrossEntropyForwardBackward{.losses = of(losses, {1}),
                                        .logits = of(logits, {1, V}),
                                        .targets = of(targets, {1}),
                                        .part = whole_vocabulary(V),
                                        .scale = 1});
  EXPECT_NEAR(losses[0], std::log(2.0), 1e-6);
  EXPECT_EQ(logits[0], 0);
  EXPECT_NEAR(logits[7], 0.5, 1e-6);
  EXPECT_NEAR(logits[4321], -0.5, 1e-6);
}

TEST(NotANumber, NeverAnUpdate) {
  Stream s(World::cpu);
  for (double bad : {double(nan), double(infinity), -9.0})
    for (double max_norm : {0.0, 1.0}) {
      std::vector<double> state(UpdateState::numel, 0.0), sums{1, bad, 1, 2};
      launch(s, DecideUpdate{.state = of(state),
                             .sums = of(sums),
                             .rules = {.max_norm = max_norm, .skip_above = 10},
                             .adamw = {.learning_rate = 1}});
      EXPECT_EQ(state[0], double(Decision::not_finite)) << bad << " " << max_norm;
      std::vector<float> master{1, 2}, m{3, 4}, v{5, 6}, grad{float(bad), 7};
      launch(s, AdamWUpdate{.master = of(master, {2}),
                            .m = of(m, {2}),
                            .v = of(v, {2}),
                            .grad = of(grad, {2}),
                            .state = of(state),
                            .adamw = {.learning_rate = 1}});
      EXPECT_EQ(master, (std::vector<float>{1, 2}));
      EXPECT_EQ(m, (std::vector<float>{3, 4}));
      EXPECT_EQ(v, (std::vector<float>{5, 6}));
    }
}

TEST(NotANumber, PassesThroughEveryOp) {
  Stream s(World::cpu);
  std::vector<float> x(67, 0.25f), y(67), stat(2), w(67, 1.0f), b(67);
  x[66] = nan;
  launch(s, GeluForward{.y = of(y, {1, 67}), .x = of(x, {1, 67})});
  EXPECT_TRUE(std::isnan(y[66]) && std::isfinite(y[0]));
  launch(s,
         LayerNormForward{
             .y = of(y, {1, 67}), .stat = of(stat, {1, 2}), .x = of(x, {1, 67}), .w = of(w, {67}), .b = of(b, {67})});
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(stat[0]));
  double sum = 0;
  launch(s, AccumulateSquareSum{.out = of(sum), .x = of(x, {67})});
  EXPECT_TRUE(std::isnan(sum));
  // Attention: a key that is NaN reaches the rows that see it, and no earlier one.
  const int64_t T = 67, D = 16;
  std::vector<float> qkv(size_t(T * 3 * D), 0.1f), out(size_t(T * D)), lse(static_cast<size_t>(T));
  qkv[size_t(40 * 3 * D + D)] = nan;
  launch(s, AttentionForward{
                .out = of(out, {T, D}), .lse = of(lse, {1, 1, T}), .qkv = of(qkv, {T, 3 * D}), .dims = {1, T, 1, D}});
  for (int64_t t = 0; t < T; t++) EXPECT_EQ(std::isnan(out[size_t(t * D)]), t >= 40) << t;
}

}  // namespace
}  // namespace megalith::test
