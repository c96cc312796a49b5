// The machine itself: right kernels give right results, and every planted fault is found, with kernel, block and
// thread.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "tests/message_of.h"
#include "tests/simt/faults.h"
#include "tests/simt/simt.h"

namespace megalith::test {
namespace {

// y of 256 floats that nobody has written, x of 128 with x[i] = i / 8; y after the launch.
using Run = std::function<void(const char*, Tensor, Tensor)>;
std::vector<float> result_of(const char* kernel, const Run& run = run_planted) {
  const simt::InGridOrder in_order;
  simt::clear_memory();
  const Tensor y(simt::allocate("y", 1024, simt::Contents::unwritten), DType::f32, {256});
  const Tensor x(simt::allocate("x", 512, simt::Contents::read_only), DType::f32, {128});
  for (int i = 0; i < 128; i++) x.data<float>()[i] = static_cast<float>(i) / 8;
  run(kernel, y, x);
  return {y.data<float>(), y.data<float>() + 256};
}
void expect_fault(const char* kernel, const std::string& where, const std::string& what, const Run& run = run_planted) {
  SCOPED_TRACE(kernel);
  const std::string message = message_of([&] { result_of(kernel, run); });
  EXPECT_TRUE(message.starts_with(fmt::format("kernel {}, {}: ", kernel, where))) << message;
  EXPECT_NE(message.find(what), std::string::npos) << message;
}

TEST(Machine, ReducesInParallel) {
  const std::vector<float> y = result_of("reduction");
  EXPECT_EQ(y[0], 63 * 64 / 2 / 8.0f);
  EXPECT_EQ(y[1], (127 * 128 / 2 - 63 * 64 / 2) / 8.0f);
}
TEST(Machine, SeesWhatCallsAreGivenAndReturn) {
  simt::clear_memory();
  std::vector<Tensor> tensors;
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::f32})
    tensors.emplace_back(simt::allocate(name_of(type), 32 * size_of(type), simt::Contents::unwritten), type, Shape{32});
  for (size_t i = 0; i < 3; i++) {
    const std::string message = message_of([&] { run_unoptimized(tensors[i + 1], tensors[i]); });
    EXPECT_NE(message.find(fmt::format("reads byte 0 of {}", name_of(tensors[i].dtype()))), std::string::npos)
        << message;
  }
  simt::writes_by_library(tensors[0].raw(), tensors[0].bytes());
  for (int64_t i = 0; i < 32; i++) tensors[0].data<float>()[i] = static_cast<float>(i) / 8;
  for (size_t i = 0; i < 3; i++) {
    run_unoptimized(tensors[i + 1], tensors[i]);
    EXPECT_EQ(error_of([&] { simt::reads_by_library(tensors[i + 1].raw(), tensors[i + 1].bytes()); }).value_or(""), "");
  }
  for (int64_t i = 0; i < 32; i++) EXPECT_EQ(tensors[3].data<float>()[i], static_cast<float>(i) / 8);
}
TEST(Machine, WarpsAreOrderedBySyncWarp) { EXPECT_EQ(result_of("warp_order")[64 + 33], 62 / 8.0f); }
TEST(Machine, CopiesAsynchronously) {
  const std::vector<float> y = result_of("async");
  EXPECT_EQ(y[31], 31 / 8.0f);
  EXPECT_EQ(y[32], 0);
}
TEST(Machine, MultipliesMatrices) {
  for (const char* kernel : {"matrices of bf16", "matrices of f16"}) {
    const std::vector<float> y = result_of(kernel);
    for (int row = 0; row < 16; row++)
      for (int column = 0; column < 8; column++) {
        float want = 0;
        for (int k = 0; k < 16; k++)
          want += static_cast<float>((row * 16 + k) % 128) / 8 * static_cast<float>(k * 8 + column) / 8;
        EXPECT_EQ(y[static_cast<size_t>(row * 8 + column)], want) << kernel;
        EXPECT_EQ(y[static_cast<size_t>(128 + row * 8 + column)], want) << kernel;
      }
  }
}

// By rows, of either kind: a row of x times a row; by weights: the same, since b has x's columns again and again; by
// columns: x's own.
std::vector<float> wanted_products() {
  const auto x = [](int row, int column) { return static_cast<float>((row * 16 + column) % 128) / 8; };
  std::vector<float> want(256);
  for (int row = 0; row < 64; row++)
    for (int column = 0; column < 4; column++)
      for (int k = 0; k < 16; k++)
        want[static_cast<size_t>(row * 4 + column)] +=
            2 * x(row, k) * x(column, k) + x(row, k) * x(k, column) + x(k, row % 16) * x(k, column);
  return want;
}
TEST(Machine, MultipliesByWarpgroups) {
  for (const char* kernel : {"products", "products of f16"})
    EXPECT_EQ(result_of(kernel, run_planted_products), wanted_products()) << kernel;
}
TEST(Machine, ProductsTakeTheirTime) {
  for (const float sum : result_of("early_read", run_planted_products)) EXPECT_TRUE(std::isnan(sum));
  expect_fault("overwritten_before_the_wait", "block (0, 0, 0), thread (127, 0, 0)", "race: reads byte",
               run_planted_products);
  expect_fault("overwritten_after_it", "block (0, 0, 0), thread (121, 0, 0)", "other threads read",
               run_planted_products);
}
TEST(Machine, FindsProductsOutOfOrder) {
  // Whoever comes last to the product finds it.
  const std::string last = "block (0, 0, 0), thread (126, 0, 0)";
  expect_fault("not_begun", "block (0, 0, 0), thread (127, 0, 0)", "no products_begin", run_planted_products);
  expect_fault("not_published", last, "has not published before a barrier between both", run_planted_products);
  expect_fault("different_places", last, "different matrices", run_planted_products);
  expect_fault("one_warp_only", "block (0, 0, 0), thread (0, 0, 0)", "waits for lane 32, which has ended",
               run_planted_products);
}

TEST(Machine, FindsBarriersNotAllComeTo) {
  expect_fault("divergent_barrier", "block (0, 0, 0), thread (0, 0, 0)", "thread (3, 0, 0) has ended");
  expect_fault("two_barriers", "block (0, 0, 0), thread (0, 0, 0)", "thread (32, 0, 0) waits at sync_threads, ");
}
TEST(Machine, FindsLanesThatDoNotCome) {
  expect_fault("missing lane 0", "block (0, 0, 0), thread (33, 0, 0)", "waits for lane 0, which has ended");
  for (const int lane : {5, 30, 31})
    expect_fault(fmt::format("missing lane {}", lane).c_str(), "block (0, 0, 0), thread (32, 0, 0)",
                 fmt::format("waits for lane {}, which has ended", lane));
  expect_fault("lane_of_no_mask", "block (0, 0, 0), thread (15, 0, 0)", "lane 20, which its mask does not name");
}
TEST(Machine, FindsReadsOfWhatNobodyWrote) {
  expect_fault("unwritten_shared", "block (0, 0, 0), thread (5, 0, 0)", "reads a __shared__ variable");
  expect_fault("unwritten_dynamic", "block (0, 0, 0), thread (0, 0, 0)", "reads byte 0 of shared memory");
  expect_fault("unwritten_tensor", "block (0, 0, 0), thread (0, 0, 0)", "reads byte 0 of y");
  expect_fault("early_async", "block (0, 0, 0), thread (0, 0, 0)", "asynchronous copy nobody waited for");
}
TEST(Machine, WatchesCopiesOfTheCLibrary) {
  const std::vector<float> y = result_of("copies");
  for (size_t i = 0; i < 64; i++) {
    EXPECT_EQ(y[i], 0);
    EXPECT_EQ(y[96 + i], static_cast<float>(i) / 8);
  }
  EXPECT_EQ(y[255], 63 / 8.0f);
  expect_fault("copies_unwritten", "block (0, 0, 0), thread (7, 0, 0)", "reads byte 256 of y, which no thread");
  expect_fault("moves_beyond", "block (0, 0, 0), thread (7, 0, 0)", "reads 1016 bytes at byte 0 of x, which has 512");
  expect_fault("sets_input", "block (0, 0, 0), thread (7, 0, 0)", "writes to x, which is read-only");
}
TEST(Machine, FindsAccessesOutside) {
  expect_fault("beyond_dynamic", "block (0, 0, 0), thread (63, 0, 0)",
               "at byte 256 of shared memory, the launch asked for 256");
  expect_fault("beyond_tensor", "block (1, 0, 0), thread (63, 0, 0)", "reads 4 bytes at byte 512 of x, which has 512");
  expect_fault("before_tensor", "block (0, 0, 0), thread (0, 0, 0)", "writes 4 bytes at byte -4 of y");
  expect_fault("beyond_array", "block (0, 0, 0), thread (40, 0, 0)", "index 32 is outside its array");
  expect_fault("writes_input", "block (0, 0, 0), thread (9, 0, 0)", "writes to x, which is read-only");
  expect_fault("misaligned", "block (0, 0, 0), thread (0, 0, 0)", "misaligned");
}
// Returns what a GPU with so much shared memory, of whatever size, says of a launch; empty: it runs.
std::string refusal(int64_t shared_bytes, bool asks, dim3 grid = {2}, int threads = 64) {
  const auto run = [=](const char*, Tensor y, Tensor x) {
    run_with_shared(shared_bytes, asks, grid, threads, y, x);
    for (int i = 0; i < 128; i++) EXPECT_EQ(y.data<float>()[i], static_cast<float>(i % 64) / 8);
  };
  return error_of([&] { result_of("own_and_dynamic", run); }).value_or("");
}
void expect_refused(const std::string& words, const std::string& refusal) {
  EXPECT_NE(refusal.find(words), std::string::npos) << refusal;
}
TEST(Machine, GivesWhatCudaGivesUnasked) {
  constexpr int64_t unasked = 48 << 10;
  EXPECT_EQ(refusal(unasked - 1024, false), "");
  expect_refused("128 bytes", refusal(unasked - 1023, false));
  expect_refused("it is allowed 49152 in all", refusal(unasked, false));
  expect_refused("49153 bytes of shared memory, of which it is allowed 49152", refusal(unasked + 1, false));
  EXPECT_EQ(refusal(unasked + 1, true), "");
}
TEST(Machine, GivesWhatTheChipHas) {
  for (const simt::Chip& chip : {simt::a100, simt::h100, simt::l4}) {
    const simt::AsChip machine(chip);
    EXPECT_EQ(refusal(chip.shared_memory - 1024, true), "") << chip.name;
    expect_refused("128 bytes", refusal(chip.shared_memory - 1023, true));
    expect_refused("a block of the simulated", refusal(chip.shared_memory + 1, true));
  }
  expect_refused("threads a block", refusal(256, true, {2}, 1056));
  expect_refused("a grid of", refusal(256, true, {1, 65536}));
  expect_refused("a grid of", refusal(256, true, {1u << 31}));
}

TEST(Machine, FindsRaces) {
  expect_fault("race_in_block", "block (0, 0, 0), thread (1, 0, 0)", "thread 0 of the block wrote");
  expect_fault("race_after_read", "block (0, 0, 0), thread (32, 0, 0)", "thread 0 of the block read");
  expect_fault("race_of_blocks", "block (1, 0, 0), thread (0, 0, 0)", "block 0 of this launch wrote");
}
TEST(Machine, OrdersWarpsByNamedBarriers) {
  const std::vector<float> y = result_of("turns");
  for (size_t i = 0; i < 64; i++) EXPECT_EQ(y[i], static_cast<float>(i / 32 * 32 + 31 - i % 32) / 8);
  const std::string block = "block (0, 0, 0), thread ";
  expect_fault("handed_before_it_is_written", block + "(0, 0, 0)", "thread 63 of the block read");
  expect_fault("read_before_the_turn", block + "(32, 0, 0)", "thread 31 of the block wrote");
  expect_fault("overwritten_before_the_turn", block + "(0, 0, 0)", "thread 63 of the block read");
  expect_fault("never_handed", block + "(0, 0, 0)", "waits at barrier 2");
  expect_fault("handed_twice", block + "(0, 0, 0)", "the block ends, and 32 of 64 threads have come to barrier 3");
  expect_fault("other_number", block + "(63, 0, 0)", "barrier 1 of 32 threads, to which others came for 64");
  expect_fault("no_whole_warps", block + "(31, 0, 0)", "barrier 1 of 63 threads, expected whole warps");
  expect_fault("barrier_zero", block + "(31, 0, 0)", "barrier 0; a named one is 1 to 15");
}
TEST(Machine, OrdersBlocksByFlags) {
  EXPECT_EQ(result_of("handed_on")[64 + 3], 2 * 60 / 8.0f);
  expect_fault("released_before_the_barrier", "block (1, 0, 0), thread (0, 0, 0)", "block 0 of this launch wrote");
  expect_fault("used_before_the_barrier", "block (1, 0, 0), thread (0, 0, 0)", "block 0 of this launch wrote");
  expect_fault("never_released", "block (1, 0, 0), thread (0, 0, 0)", "awaits 2 in byte 1020 of y, which has 1");
}
// Blocks that know from a ticket who they are may wait for earlier ones in whatever order they start; those that go by
// their index may not.
TEST(Machine, StartsBlocksInAnyOrder) {
  simt::clear_memory();
  const Tensor y(simt::allocate("y", 1024, simt::Contents::unwritten), DType::f32, {256});
  const Tensor x(simt::allocate("x", 512, simt::Contents::read_only), DType::f32, {128});
  for (int i = 0; i < 128; i++) x.data<float>()[i] = static_cast<float>(i) / 8;
  auto* counter = reinterpret_cast<int32_t*>(y.data<float>() + 254);
  const auto found = [&](const char* kernel) -> std::string {
    simt::writes_by_library(y.raw(), y.bytes());
    *counter = counter[1] = 0;
    if (const auto error = error_of([&] { run_planted(kernel, y, x); })) return *error;
    EXPECT_EQ(y.data<float>()[64 + 3], 2 * 60 / 8.0f);
    return "";
  };
  int faults = 0;
  for (int launch = 0; launch < 20; launch++) {
    EXPECT_EQ(found("handed_on_by_tickets"), "");
    EXPECT_EQ(*counter, 2);
    const std::string fault = found("handed_on");
    if (fault.empty()) continue;
    EXPECT_NE(fault.find("no block before this one has released it"), std::string::npos) << fault;
    faults++;
  }
  EXPECT_TRUE(faults > 0 && faults < 20) << faults;
  expect_fault("handed_on_by_tickets", "block (0, 0, 0), thread (0, 0, 0)", "reads byte 1016 of y, which no thread");
  expect_fault("counted_from_within", "block (1, 0, 0), thread (0, 0, 0)", "which was written in this launch");
}
TEST(Machine, EndsWithTheFirstFault) {
  expect_fault("all_threads_throw", "block (0, 0, 0), thread (0, 0, 0)", "thrown by all");
}
TEST(Machine, GoesOnAfterAFault) {
  expect_fault("divergent_barrier", "block (0, 0, 0), thread (0, 0, 0)", "divergent barrier");
  EXPECT_EQ(result_of("reduction")[0], 63 * 64 / 2 / 8.0f);
}

}  // namespace
}  // namespace megalith::test
