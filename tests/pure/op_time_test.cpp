// How long ops take: rooflines by hand.
#include "trainer/planner/op_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "trainer/planner/time_line.h"

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

// A rank of a CPU with so many threads; a loop that they share costs a second.
double on_cpu(const Cost& cost, int64_t threads, bool library_tiles = false) {
  Hardware h = hardware();
  h.device.kind = DeviceKind::cpu;
  h.calibrated.fork = 1e6;
  return op_time(
      cost,
      {.peak = 1e12, .peak_f32 = 0.25e12, .bandwidth = 1e9, .multiprocessors = threads, .library_tiles = library_tiles},
      h);
}

Cost with(Cost::Kind kind, Cost cost) {
  cost.kind = kind;
  return cost;
}

TEST(OpTime, OneThreadOfACpuHasNoTilesNorRamps) {
  EXPECT_DOUBLE_EQ(on_cpu(gemm(1, 1, 1), 1), 2e-12);
  EXPECT_DOUBLE_EQ(on_cpu(attention(10, 8), 1), attention(10, 8).flops / 0.5e12);
  EXPECT_DOUBLE_EQ(on_cpu({.flops = 1e9, .bytes = 5e9}, 1), 5);
}

TEST(OpTime, ThreadsShareTheTilesOfAProduct) {
  const Cost one_tile = gemm(64, 128, 512), two = gemm(64, 384, 128), four = gemm(512, 768, 100);
  EXPECT_DOUBLE_EQ(on_cpu(one_tile, 2), 2 * one_tile.flops / 1e12) << "a thread has nothing to do, and is not woken";
  EXPECT_DOUBLE_EQ(on_cpu(two, 2), two.flops / 1e12 + 1);
  EXPECT_DOUBLE_EQ(on_cpu(two, 4), 2 * two.flops / 1e12 + 1);
  EXPECT_DOUBLE_EQ(on_cpu(four, 4), four.flops / 1e12 + 1);
  EXPECT_DOUBLE_EQ(on_cpu(four, 3), four.flops / 1e12 * 3 / 2 + 1) << "two waves";
  EXPECT_DOUBLE_EQ(on_cpu(one_tile, 2, true), one_tile.flops / 1e12 + 1) << "cut by the library";
  // 72 rows and 58, in 768 columns and 732: who has done the smaller tile takes the larger one of those that are left.
  const Cost uneven = gemm(130, 1500, 100);
  EXPECT_DOUBLE_EQ(on_cpu(uneven, 2), 2.0 * 2 * (72 * 768 + 58 * 732) * 100 / 1e12 + 1);
}

// Muon's products on a CPU, beside a model in bf16.
TEST(OpTime, AProductOfF32HasItsOwnRateAndTiles) {
  Cost wide = gemm(64, 384, 128);
  wide.f32 = true;
  EXPECT_DOUBLE_EQ(on_cpu(wide, 1, true), 4 * on_cpu(gemm(64, 384, 128), 1, true));
  EXPECT_DOUBLE_EQ(on_cpu(wide, 4, true), 2 * wide.flops / 0.25e12 + 1) << "two tiles for four threads";
}

TEST(OpTime, EachLoopThatThreadsShareCosts) {
  const Cost product = gemm(512, 768, 100);
  Cost biased = product, gelu = product;
  biased.flops += 512 * 768;
  gelu.flops += 10 * 512 * 768;
  EXPECT_NEAR(on_cpu(biased, 2), 1, 1e-3) << "a bias is added in the tiles";
  EXPECT_NEAR(on_cpu(gelu, 2), 2, 1e-3);
  const Cost sums = with(Cost::Kind::gemm_add, {.flops = product.flops + 512 * 100, .m = 512, .n = 768, .k = 100});
  EXPECT_NEAR(on_cpu(sums, 2), 2, 1e-3) << "the bias's gradient";
  EXPECT_NEAR(on_cpu({.bytes = 4 * 16383}, 2), 0, 1e-3) << "too small to be shared";
  EXPECT_NEAR(on_cpu({.bytes = 4 * 16384}, 2), 1, 1e-3);
  EXPECT_NEAR(on_cpu({.flops = 16384, .bytes = 4}, 2), 1, 1e-3);
  EXPECT_NEAR(on_cpu({.bytes = 4 * 16384, .kind = Cost::Kind::input}, 2), 0, 1e-3);
  Hardware gpu = hardware();
  gpu.calibrated.fork = 1e6;
  EXPECT_DOUBLE_EQ(seconds({.bytes = 5e9}, gpu), 5) << "a GPU has none";
}

TEST(OpTime, ThreadsShareTheHeadsOfAttention) {
  const Cost twelve = attention(10, 8);
  EXPECT_DOUBLE_EQ(on_cpu(twelve, 6), twelve.flops / 0.5e12 + 1);
  EXPECT_DOUBLE_EQ(on_cpu(twelve, 5), twelve.flops / 0.5e12 * 5 * 3 / 12 + 1) << "three for the busiest of five";
  Cost one = twelve;
  one.m = 1;
  EXPECT_DOUBLE_EQ(on_cpu(one, 6), 6 * one.flops / 0.5e12);
}

TEST(OpTime, ForksAreOnTheAccountsOfTheirOps) {
  Hardware h = hardware();
  h.device.kind = DeviceKind::cpu;
  h.calibrated.launch = 0;
  const auto op = [](const Cost& cost) { return TraceEvent{.kind = TraceEvent::Kind::op, .op = "op", .cost = cost}; };
  const auto trace = stage_trace(
      0, {op(gemm(512, 768, 100)), op(gemm(64, 128, 100)), op(attention(10, 8)), op({.bytes = 1e9}), op({.bytes = 4})});
  const auto line = [&](double fork) {
    h.calibrated.fork = fork;
    return time_line({}, {trace}, h, {.peak = 1e12, .peak_f32 = 1e12, .bandwidth = 1e9, .multiprocessors = 2});
  };
  const TimeLine before = line(0), after = line(1e6);
  const auto moved = [&](Account account) {
    return at(after.breakdowns[0], account) - at(before.breakdowns[0], account);
  };
  EXPECT_NEAR(moved(Account::gemm), 1, 1e-9);
  EXPECT_NEAR(moved(Account::attention), 1, 1e-9);
  EXPECT_NEAR(moved(Account::elementwise), 1, 1e-9);
  EXPECT_NEAR(after.seconds - before.seconds, 3, 1e-9);
  EXPECT_NEAR(std::accumulate(after.breakdowns[0].begin(), after.breakdowns[0].end(), 0.0), after.seconds, 1e-9);
}

TEST(Processor, RanksOfACpuShareItsThreads) {
  Hardware h = hardware();
  h.device = {.name = "unit",
              .kind = DeviceKind::cpu,
              .per_node = 1,
              .bandwidth = 8,
              .bf16 = 2,
              .fp16 = 1,
              .fp32 = 1,
              .multiprocessors = 8};
  EXPECT_EQ(processor_of(h, ComputeType::fp32, 1).multiprocessors, 8);
  EXPECT_EQ(processor_of(h, ComputeType::fp32, 4).multiprocessors, 2);
  EXPECT_EQ(processor_of(h, ComputeType::fp32, 32).multiprocessors, 1);
  EXPECT_DOUBLE_EQ(processor_of(h, ComputeType::fp32, 4).bandwidth, 2e9);
  EXPECT_DOUBLE_EQ(processor_of(h, ComputeType::fp32, 4).peak, 0.25e12);
  EXPECT_FALSE(processor_of(h, ComputeType::fp32, 1).library_tiles);
  EXPECT_TRUE(processor_of(h, ComputeType::bf16, 1).library_tiles) << "twice as fast as what is widened";
  h.device.kind = DeviceKind::gpu;
  EXPECT_EQ(processor_of(h, ComputeType::bf16, 8).multiprocessors, 8) << "a device's own";
  EXPECT_DOUBLE_EQ(processor_of(h, ComputeType::bf16, 1).peak, 2e12);
  EXPECT_DOUBLE_EQ(processor_of(h, ComputeType::bf16, 1).peak_f32, 1e12);
  EXPECT_DOUBLE_EQ(processor_of(h, ComputeType::fp16, 1).peak, 1e12);
}

}  // namespace
}  // namespace megalith
