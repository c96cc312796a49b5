// Launches that a stream replays, on whatever device this is linked with: the same numbers as one by one, in order with
// everything else, and what a graph is not for.
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"
#include "tests/device/device.h"

namespace megalith::test {
namespace {

using Status = LaunchGraph::Status;

class DeviceGraphs : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    device::select(0);
    queue_.emplace();
    s_.emplace(World::cuda, queue_->queue());
    arena_.emplace(World::cuda, "device", 1 << 20);
    for (Tensor* t : {&x_, &y_, &z_}) *t = arena_->tensor(DType::f32, {1000});
    for (const Tensor& t : {x_, y_, z_}) launch(*s_, Fill{.y = t, .value = 0});
  }
  // y = 2 (y + x) + 1, by way of `scratch`.
  void ops(const Tensor& scratch) {
    launch(*s_, Add{.y = y_, .x = x_});
    launch(*s_, Copy{.y = scratch, .x = y_});
    launch(*s_, Add{.y = y_, .x = scratch});
    launch(*s_, Fill{.y = scratch, .value = 1});
    launch(*s_, Add{.y = y_, .x = scratch});
  }
  void replay(const Tensor& scratch) {
    s_->replay(graph_, [&] { ops(scratch); });
  }
  void upload(float value) {
    s_->upload("x", {x_}, [=](std::span<const Tensor> host) { std::fill_n(host[0].data<float>(), 1000, value); });
  }
  float last_of_y() {
    float value = 0;
    s_->download("y", y_.flat(999, 1000), [&](Tensor host) { value = *host.data<float>(); });
    s_->synchronize();
    return value;
  }
  int64_t launches() const {
    int64_t all = 0;
    for (const OpRecord& op : s_->log()) all += op.launches;
    return all;
  }

  std::optional<DeviceQueue> queue_;
  std::optional<Stream> s_;
  std::optional<Arena> arena_;
  Tensor x_, y_, z_;
  LaunchGraph graph_;
};

// The same addresses with other contents each time, as the tokens of a microbatch.
TEST_F(DeviceGraphs, GiveTheNumbersOfOpsOneByOne) {
  float want = 0;
  s_->clear_log();
  for (int round = 0; round < 6; round++) {
    upload(static_cast<float>(round));
    replay(z_);
    want = 2 * (want + static_cast<float>(round)) + 1;
    EXPECT_EQ(graph_.status(), round == 0 ? Status::noted : Status::captured);
    EXPECT_EQ(s_->graphs(), (GraphCounts{round, 5 * round}));
    EXPECT_EQ(launches(), 6 * (round + 1) + round) << "as one by one, and what was read";
    EXPECT_EQ(last_of_y(), want) << round;
  }
}

// None waits for the host.
TEST_F(DeviceGraphs, KeepTheOrderOfTheStream) {
  std::vector<float> seen, want;
  float y = 0;
  for (int round = 0; round < 6; round++) {
    upload(static_cast<float>(round));
    replay(z_);
    s_->download("y", y_.flat(0, 1), [&](Tensor host) { seen.push_back(*host.data<float>()); });
    want.push_back(y = 2 * (y + static_cast<float>(round)) + 1);
  }
  s_->synchronize();
  EXPECT_EQ(seen, want);
}

// What replay() is not for, so that a test which compares numbers can fail: a number that an op is given.
TEST_F(DeviceGraphs, ANumberThatChangesIsTheOldOne) {
  for (int round = 0; round < 4; round++) {
    s_->replay(graph_, [&] {
      for (int i = 0; i < 4; i++) launch(*s_, Fill{.y = y_, .value = 1.0 * round});
    });
    EXPECT_EQ(last_of_y(), round == 0 ? 0 : 1) << "those of the second time";
  }
}

// Memory that is another one is seen when the graph would be made.
TEST_F(DeviceGraphs, OtherMemoryIsRefused) {
  const Tensor other = arena_->tensor(DType::f32, {1000});
  float want = 0;
  upload(1);
  for (int round = 0; round < 5; round++) {
    replay(round % 2 ? other : z_);
    want = 2 * (want + 1) + 1;
    EXPECT_EQ(last_of_y(), want);
    EXPECT_EQ(graph_.status(), round == 0 ? Status::noted : Status::refused);
  }
  EXPECT_EQ(s_->graphs(), (GraphCounts{1, 5})) << "the one that was captured ran";
}

TEST_F(DeviceGraphs, FewOpsAreLaunchedAsEver) {
  for (int round = 0; round < 4; round++) s_->replay(graph_, [&] { launch(*s_, Add{.y = y_, .x = x_}); });
  EXPECT_EQ(graph_.status(), Status::refused);
  EXPECT_EQ(s_->graphs(), GraphCounts{});
}

// While somebody looks at single ops they are launched one by one, whether there is a graph or not.
TEST_F(DeviceGraphs, AreNotLaunchedWhileOpsAreLookedAt) {
  struct Watcher : OpWatcher {
    int ops = 0;
    void launched(const char*, std::span<const Tensor>) override { ops++; }
  } watcher;
  float want = 0;
  for (int round = 0; round < 6; round++) {
    s_->watch_ops(round == 1 || round == 4 ? &watcher : nullptr);
    if (round == 5) s_->time_ops();
    replay(z_);
    want = 2 * want + 1;
    EXPECT_EQ(last_of_y(), want);
  }
  EXPECT_EQ(watcher.ops, 10 + 2) << "with the two that are read";
  EXPECT_EQ(s_->graphs(), (GraphCounts{2, 10})) << "rounds 2 and 3";
}

// The stream goes on, and what was captured until then is lost.
TEST_F(DeviceGraphs, AnErrorEndsTheCapture) {
  replay(z_);
  EXPECT_THROW(s_->replay(graph_,
                          [&] {
                            ops(z_);
                            FAIL("planted");
                          }),
               Error);
  EXPECT_EQ(last_of_y(), 1);
  replay(z_);
  EXPECT_EQ(last_of_y(), 3);
  EXPECT_EQ(graph_.status(), Status::captured);
}

}  // namespace
}  // namespace megalith::test
