// Only the simulated GPU shows this of the queue of copies: that the host never waits for it, and that a copy which
// nothing orders has wrong numbers, so that the tests of those that are in order can fail.
#include <gtest/gtest.h>

#include <optional>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"
#include "tests/message_of.h"
#include "tests/simt/simt.h"

namespace megalith {
namespace {

constexpr int64_t n = 500;

class SimtHostCopies : public testing::Test {
 protected:
  DeviceQueue queue_;
  Stream s_{World::cuda, queue_.queue()};
  Arena device_{World::cuda, "device", 1 << 20};
  std::optional<Arena> host_{std::in_place, World::cuda, "host", 1 << 20, MemoryPlace::host};
  const Tensor x_ = device_.tensor(DType::f32, {n}), kept_ = host_->tensor(DType::f32, {n});
};

TEST_F(SimtHostCopies, TheHostDoesNotWait) {
  *kept_.data<float>() = -1;  // the host's memory is open to it
  launch(s_, Fill{.y = x_, .value = 1});
  Pending away = s_.to_host(kept_, x_);
  const int64_t enqueued = simt::work_enqueued();
  EXPECT_EQ(enqueued, 5) << "the op, its place recorded and waited for, the copy and its place";
  away.wait();
  EXPECT_EQ(simt::work_enqueued(), enqueued + 1);
  EXPECT_EQ(*kept_.data<float>(), -1) << "nothing is done yet";
  s_.synchronize();
  EXPECT_EQ(*kept_.data<float>(), 1);
}

// As in the contract of Pending: `from` and `to` stay untouched until then.
TEST_F(SimtHostCopies, WhatIsTouchedBeforeTheWaitHasWrongNumbers) {
  const Tensor y = device_.tensor(DType::f32, {n});
  int overwritten = 0, read_early = 0, rounds = 30;
  launch(s_, Fill{.y = y, .value = -1});
  for (int round = 0; round < rounds; round++) {
    const auto value = static_cast<float>(round);
    launch(s_, Fill{.y = x_, .value = value});
    Pending away = s_.to_host(kept_, x_);
    launch(s_, Fill{.y = x_, .value = -2});
    away.wait();
    s_.synchronize();
    overwritten += *kept_.data<float>() != value;
    *kept_.data<float>() = value;
    Pending back = s_.to_device(y, kept_);
    s_.download("y", y.flat(0, 1), [&](Tensor t) { read_early += *t.data<float>() != value; });
    back.wait();
    s_.synchronize();
  }
  EXPECT_GT(overwritten, 0);
  EXPECT_LT(overwritten, rounds);
  EXPECT_GT(read_early, 0);
  EXPECT_LT(read_early, rounds);
}

TEST_F(SimtHostCopies, PinnedMemoryReleasedUnderACopyIsFound) {
  launch(s_, Fill{.y = x_, .value = 1});
  Pending away = s_.to_host(kept_, x_);
  away.wait();
  host_.reset();
  const std::string message = message_of([&] { s_.synchronize(); });
  EXPECT_NE(message.find("pinned memory that was released"), std::string::npos) << message;
}

}  // namespace
}  // namespace megalith
