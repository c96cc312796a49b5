// How long ops take: rooflines by hand.
#include "trainer/planner/op_time.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megalith {
namespace {

constexpr int64_t multiprocessors = 100;

// 1 TFLOP/s and 1 GB/s.
constexpr Processor processor{.peak = 1e12, .bandwidth = 1e9, .multiprocessors = multiprocessors};

Hardware hardware() {
  Hardware h;
  h.calibrated.gemm = h.calibrated.memory = 1;
  h.stack = {};
  h.stack.attention_share = 0.5;
  return h;
}

Cost gemm(int64_t m, int64_t n, int64_t k, double bytes = 0) {
  return {
      .flops = 2.0 * static_cast<double>(m * n * k), .bytes = bytes, .kind = Cost::Kind::gemm, .m = m, .n = n, .k = k};
}

double seconds(const Cost& cost, const Hardware& h = hardware()) { return op_time(cost, processor, h); }

TEST(OpTime, AWholeWaveOfTilesHasTheFullRate) {
  // 10 x 10 tiles of 256 x 128 on 100 multiprocessors; 176 is half as long as start and end.
  const Cost full = gemm(2560, 1280, 17600);
  EXPECT_DOUBLE_EQ(seconds(full), full.flops / 1e12 * 1.01);
  EXPECT_GT(seconds(gemm(2560, 1280, 176)), 1.9 * seconds(full) / 100) << "a short inner dimension";
}

TEST(OpTime, PaddingAndIdleMultiprocessorsCost) {
  const double full = seconds(gemm(2560, 1280, 17600));
  EXPECT_DOUBLE_EQ(seconds(gemm(2559, 1279, 17600)), full) << "padded to whole tiles";
  const double one_more = seconds(gemm(2561, 1280, 17600));
  EXPECT_GT(one_more, 1.05 * full) << "a second wave";
  EXPECT_LT(one_more, 2 * full) << "other tiles, or parts of the inner dimension, share out better";
  // Small: on 32 multiprocessors four slower tiles of 128 x 64, each with an eighth of the inner dimension, are best.
  const Cost small = gemm(256, 128, 65536);
  const double rate = 1e12 * 0.79 * std::pow(32.0 / multiprocessors, 0.46);
  EXPECT_DOUBLE_EQ(seconds(small), small.flops / rate * (1 + 176 * 8 / 65536.0));
}

TEST(OpTime, NoFasterThanItsBytes) {
  EXPECT_DOUBLE_EQ(seconds(gemm(128, 128, 128, 5e9)), 5);
  EXPECT_DOUBLE_EQ(seconds({.bytes = 5e9}), 5);
  Cost add = gemm(1000, 1000, 1000, 5e9);
  add.kind = Cost::Kind::gemm_add;
  Hardware h = hardware();
  h.stack.accumulate_bytes = 3;
  EXPECT_DOUBLE_EQ(seconds(add, h), 5 + 3e6 / 1e9) << "what other programs add outside of the GEMM";
  h.stack.elementwise = 4;
  EXPECT_DOUBLE_EQ(seconds({.bytes = 5e9}, h), 20);
  EXPECT_DOUBLE_EQ(seconds({.bytes = 5e9, .kind = Cost::Kind::update}, h), 5);
  EXPECT_DOUBLE_EQ(seconds(gemm(128, 128, 128, 5e9), h), 5);
  h.calibrated.memory = 0.5;
  EXPECT_DOUBLE_EQ(seconds({.bytes = 5e9}, h), 40);
}

// Forward over 12 heads of so many features: two products over half of the square.
Cost attention(int64_t positions, int64_t features) {
  const auto s = static_cast<double>(positions), d = static_cast<double>(features);
  return {.flops = 2 * s * s * d * 12, .kind = Cost::Kind::attention, .m = 12, .n = positions, .k = features};
}

TEST(OpTime, FusedAttentionGrowsIntoItsRate) {
  const Cost half = attention(1080, 128), most = attention(108000, 128);
  EXPECT_DOUBLE_EQ(seconds(half), half.flops / (1e12 * 0.5 / 2));
  EXPECT_NEAR(seconds(most), most.flops / (1e12 * 0.5), 0.011 * seconds(most));
  EXPECT_DOUBLE_EQ(seconds(attention(1080, 64)), half.flops / 2 / (1e12 * 0.5 / 2 * 0.92)) << "small heads";
}

TEST(OpTime, UnfusedAttentionMovesItsScores) {
  Hardware h = hardware();
  h.stack.attention = AttentionKernel::fused_softmax;
  const Cost cost = attention(1000, 128);
  const double products = 2 * cost.flops / (1e12 * 0.45), scores = 12 * 1e6 / 1e9 * 2 / 7;
  EXPECT_NEAR(seconds(cost, h), products + 31 * scores, 1e-12);
  h.stack.attention = AttentionKernel::unfused;
  EXPECT_NEAR(seconds(cost, h), products + 61 * scores, 1e-12);
  EXPECT_NEAR(seconds(attention(1000, 100), h), products / 128 * 100 / 0.12 + 61 * scores, 1e-12) << "odd heads";
}

TEST(OpTime, ACpuHasNoTiles) {
  Hardware h = hardware();
  h.device.kind = DeviceKind::cpu;
  EXPECT_DOUBLE_EQ(seconds(gemm(1, 1, 1), h), 2e-12);
  EXPECT_DOUBLE_EQ(seconds(attention(10, 8), h), attention(10, 8).flops / 0.5e12) << "nor ramps";
}

}  // namespace
}  // namespace megalith
