// The queue of copies beside a stream, on whatever device this is linked with: what it is given keeps the order that
// events alone make.
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"
#include "tests/device/device.h"

namespace megalith::test {
namespace {

using DeviceHostCopies = OnDevice;

// A copy that starts too early, or ends too late, shows as another round's number: what it reads is written just before
// and spoiled just after, and so is the work beside it.
TEST_F(DeviceHostCopies, AreInOrderWithTheStream) {
  device::select(0);
  const int64_t n = int64_t{20'000} * device::properties().processors;
  DeviceQueue queue;
  Stream s(World::cuda, queue.queue());
  Arena device(World::cuda, "device", 4 * n * 4), host(World::cuda, "host", 3 * n * 4, MemoryPlace::host);
  const Tensor x = device.tensor(DType::f32, {n}), y = device.tensor(DType::f32, {n}),
               beside = device.tensor(DType::f32, {n});
  const Tensor kept[2] = {host.tensor(DType::f32, {n}), host.tensor(DType::f32, {n})};
  constexpr int rounds = 12;
  std::vector<float> first(rounds), last(rounds), other(rounds);
  launch(s, Fill{.y = y, .value = -1});
  for (int round = 0; round < rounds; round++) {
    const auto at = static_cast<size_t>(round);
    const auto value = static_cast<float>(round);
    launch(s, Fill{.y = x, .value = value});
    Pending away = s.to_host(kept[round % 2], x);
    launch(s, Fill{.y = beside, .value = value});
    away.wait();
    launch(s, Fill{.y = x, .value = -2});
    Pending back = s.to_device(y, kept[round % 2]);
    launch(s, Add{.y = beside, .x = beside});
    back.wait();
    s.download("first", y.flat(0, 1), [&, at](Tensor t) { first[at] = *t.data<float>(); });
    s.download("last", y.flat(n - 1, n), [&, at](Tensor t) { last[at] = *t.data<float>(); });
    s.download("beside", beside.flat(0, 1), [&, at](Tensor t) { other[at] = *t.data<float>(); });
    launch(s, Fill{.y = y, .value = -3});
  }
  s.synchronize();
  for (size_t round = 0; round < rounds; round++) {
    EXPECT_EQ(first[round], static_cast<float>(round));
    EXPECT_EQ(last[round], static_cast<float>(round));
    EXPECT_EQ(other[round], 2 * static_cast<float>(round));
  }
  for (int round : {rounds - 2, rounds - 1}) EXPECT_EQ(kept[round % 2].data<float>()[n - 1], static_cast<float>(round));
}

}  // namespace
}  // namespace megalith::test
