// Stream, Arena and device.h keep what they promise of order and memory. Each test of Stream holds for the CPU as well,
// where it shows at least that the test itself is right.
#include "kernels/stream/stream.h"

#include <chrono>
#include <cstdlib>
#include <optional>

#include "cases.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/device_queue.h"
#include "kernels/stream/arena.h"
#include "tests/device/device.h"

namespace megalith::test {
namespace {

// A stream of a world, with memory.
struct Desk {
  explicit Desk(World world) : arena(world, "test", int64_t{1} << 30) {
    if (world == World::cuda) queue.emplace();
    stream.emplace(world, queue ? queue->queue() : cuda::Queue{});
  }
  Arena arena;
  std::optional<DeviceQueue> queue;
  std::optional<Stream> stream;
};

class Streams : public testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    if (GetParam() != World::cuda) return;
    if (const std::string why = no_device(); !why.empty()) GTEST_SKIP() << why;
    device::select(0);
  }
};
INSTANTIATE_TEST_SUITE_P(In, Streams, testing::Values(World::cpu, World::cuda),
                         [](const auto& of) { return of.param == World::cuda ? "cuda" : "cpu"; });

// Large enough that the GPU is still at it when the host goes on.
constexpr int64_t large = 20'000'003;

// A copy that starts too early, or a host buffer that is used again too early, shows as another round's number.
TEST_P(Streams, UploadsOpsAndDownloadsKeepTheirOrder) {
  Desk d(GetParam());
  Stream& s = *d.stream;
  const Tensor x = d.arena.tensor(DType::f32, {large}), y = d.arena.tensor(DType::f32, {large});
  constexpr int rounds = 12;
  std::vector<float> first(rounds), last(rounds);
  launch(s, Fill{.y = y, .value = 0});
  for (int round = 0; round < rounds; round++) {
    s.upload("numbers", {x}, [&](std::span<const Tensor> host) {
      std::fill_n(host[0].data<float>(), large, static_cast<float>(round));
    });
    launch(s, Add{.y = y, .x = x});
    s.download("first", y.flat(0, 1), [&, round](Tensor t) { first[at(round)] = *t.data<float>(); });
    s.download("last", y.flat(large - 1, large), [&, round](Tensor t) { last[at(round)] = *t.data<float>(); });
  }
  s.synchronize();
  for (int round = 0; round < rounds; round++) {
    const auto sum = static_cast<float>(round * (round + 1) / 2);
    EXPECT_EQ(first[at(round)], sum) << round;
    EXPECT_EQ(last[at(round)], sum) << round;
  }
}

TEST_P(Streams, SeveralTensorsOfAnyTypeTravelTogether) {
  Desk d(GetParam());
  Stream& s = *d.stream;
  const Tensor a = d.arena.tensor(DType::i32, {3, 5}), b = d.arena.tensor(DType::f64, {1}),
               c = d.arena.tensor(DType::bf16, {7});
  s.upload("a, b and c", {a, b, c}, [](std::span<const Tensor> host) {
    for (int32_t i = 0; i < 15; i++) host[0].data<int32_t>()[i] = i * i;
    *host[1].data<double>() = 1 / 3.0;
    for (int i = 0; i < 7; i++) host[2].data<bfloat16>()[i] = bfloat16(static_cast<float>(i) / 4);
  });
  int reads = 0;
  s.download("a", a, [&](Tensor t) {
    EXPECT_EQ(t.shape(), (Shape{3, 5}));
    for (int32_t i = 0; i < 15; i++) EXPECT_EQ(t.data<int32_t>()[i], i * i);
    reads++;
  });
  s.download("b", b, [&](Tensor t) {
    EXPECT_EQ(*t.data<double>(), 1 / 3.0);
    reads++;
  });
  s.download("c", c, [&](Tensor t) {
    for (int i = 0; i < 7; i++) EXPECT_EQ(static_cast<float>(t.data<bfloat16>()[i]), static_cast<float>(i) / 4);
    reads++;
  });
  s.synchronize();
  EXPECT_EQ(reads, 3);
  s.synchronize();
  EXPECT_EQ(reads, 3) << "a download is read once";
}

TEST_P(Streams, ReceiveReadsADownloadAndThoseBeforeIt) {
  Desk d(GetParam());
  Stream& s = *d.stream;
  const Tensor x = d.arena.tensor(DType::f32, {large});
  std::vector<float> read;
  const auto download = [&] {
    return s.download("x", x.flat(0, 1), [&](Tensor t) { read.push_back(*t.data<float>()); });
  };
  launch(s, Fill{.y = x, .value = 1});
  download();
  launch(s, Fill{.y = x, .value = 2});
  const Stream::Ticket second = download();
  for (int i = 0; i < 50; i++) launch(s, Fill{.y = x, .value = 3});
  download();
  s.receive(second);
  if (GetParam() == World::cuda) {
    EXPECT_EQ(read, (std::vector<float>{1, 2})) << "and not the third";
  }
  s.synchronize();
  EXPECT_EQ(read, (std::vector<float>{1, 2, 3}));
}

TEST_P(Streams, ArenasGiveBackAndRefuse) {
  Arena arena(GetParam(), "small", 1 << 20);
  void* p = nullptr;
  {
    const auto scope = arena.scope();
    p = arena.tensor(DType::f32, {1000}).raw();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % Arena::alignment, 0u);
  }
  EXPECT_EQ(arena.tensor(DType::bf16, {7}).raw(), p);
  EXPECT_THROW(arena.tensor(DType::f32, {1 << 18}), Error);
}

using Gpu = OnDevice;

TEST_F(Gpu, TheHostDoesNotWaitAndIdleIsCalledMeanwhile) {
  device::select(0);
  Desk d(World::cuda);
  Stream& s = *d.stream;
  const Tensor x = d.arena.tensor(DType::f32, {200'000'000});
  launch(s, Fill{.y = x, .value = 0});
  s.synchronize();
  int idle = 0;
  s.on_idle([&] { idle++; });
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; i++) launch(s, Fill{.y = x, .value = 1.0 * i});
  const auto launched = std::chrono::steady_clock::now();
  s.synchronize();
  const auto done = std::chrono::steady_clock::now();
  EXPECT_LT((launched - start) * 2, done - start) << "80 GB written before the host came to wait";
  EXPECT_GT(idle, 0);
}

TEST_F(Gpu, EventsOrderTwoStreams) {
  device::select(0);
  Desk one(World::cuda), two(World::cuda);
  const Tensor x = one.arena.tensor(DType::f32, {large}), y = two.arena.tensor(DType::f32, {large});
  const device::OwnedEvent written = device::make_event(), copied = device::make_event();
  std::vector<float> found(10);
  for (int i = 0; i < 10; i++) {
    for (int k = 0; k < 20; k++) launch(*one.stream, Fill{.y = x, .value = -1});
    launch(*one.stream, Fill{.y = x, .value = 1.0 * i});
    device::record(written.get(), one.queue->queue().stream);
    device::wait(two.queue->queue().stream, written.get());
    launch(*two.stream, Copy{.y = y, .x = x});
    device::record(copied.get(), two.queue->queue().stream);
    device::wait(one.queue->queue().stream, copied.get());  // before the next round overwrites x
    two.stream->download("last", y.flat(large - 1, large), [&, i](Tensor t) { found[at(i)] = *t.data<float>(); });
  }
  two.stream->synchronize();
  for (int i = 0; i < 10; i++) EXPECT_EQ(found[at(i)], static_cast<float>(i));
}

TEST_F(Gpu, TimedEventsMeasureTheWork) {
  device::select(0);
  Desk d(World::cuda);
  Stream& s = *d.stream;
  const Tensor x = d.arena.tensor(DType::f32, {200'000'000});
  CUstream_st* stream = d.queue->queue().stream;
  const auto seconds_of = [&](int fills) {
    const device::OwnedEvent begin = device::make_timed_event(), end = device::make_timed_event();
    device::record(begin.get(), stream);
    for (int i = 0; i < fills; i++) launch(s, Fill{.y = x, .value = 1.0 * i});
    device::record(end.get(), stream);
    device::synchronize(stream);
    return device::seconds_between(begin.get(), end.get());
  };
  seconds_of(1);
  const double one = seconds_of(1), fifty = seconds_of(50);
  EXPECT_GT(one, 0);
  EXPECT_GT(fifty, 20 * one);
  EXPECT_LT(fifty, 100 * one);
}

TEST_F(Gpu, OpsAreTimedWhenAsked) {
  device::select(0);
  Desk d(World::cuda);
  Stream& s = *d.stream;
  const Tensor x = d.arena.tensor(DType::f32, {200'000'000});
  launch(s, Fill{.y = x, .value = 1});
  s.synchronize();
  EXPECT_EQ(s.log()[0].seconds, 0);
  s.time_ops();
  for (int i = 0; i < 3; i++) launch(s, Fill{.y = x, .value = 1});
  launch(s, Add{.y = x, .x = x});
  s.synchronize();
  const auto &fills = s.log()[0], &adds = s.log()[1];
  EXPECT_GT(fills.seconds, 0);
  EXPECT_GT(adds.seconds, fills.seconds / 3) << "one that reads and writes takes longer than one that writes";
  EXPECT_LT(adds.bytes / adds.seconds, 20e12) << "no card is so fast";
}

TEST_F(Gpu, MemoryComesBackAndTooMuchIsRefusedWithTheNumbers) {
  device::select(0);
  const int64_t before = device::properties().free;
  {
    const Arena arena(World::cuda, "arena", int64_t{1} << 30);
    EXPECT_LE(device::properties().free, before - (int64_t{1} << 30));
  }
  EXPECT_GE(device::properties().free, before - (int64_t{64} << 20));
  const int64_t all = device::properties().memory;
  try {
    const Arena arena(World::cuda, "far too much", 2 * all);
    ADD_FAILURE() << "allocated twice the memory of the GPU";
  } catch (const Error& e) {
    for (const char* words : {"far too much", "GiB are free", "batch.microbatch_size"})
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
  const Arena arena(World::cuda, "arena", 1024);  // the error is not met again
}

TEST_F(Gpu, ItsPropertiesMakeSense) {
  device::select(0);
  const device::Properties p = device::properties();
  EXPECT_GE(p.major, 8);
  EXPECT_GT(p.processors, 0);
  EXPECT_GT(p.cache, 0);
  EXPECT_GT(p.memory, p.free);
  EXPECT_EQ(p.id.size(), 32u);
}

// Kernels and what they read, before the first of them waits for another GPU; what the environment says is kept.
TEST(Environment, IsThatOfKernelsThatWait) {
  constexpr const char* names[] = {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUDA_MODULE_DATA_LOADING"};
  for (const char* name : names) unsetenv(name);
  device::expect_waiting_kernels();
  const auto said = [&] { return fmt::format("{} {} {}", getenv(names[0]), getenv(names[1]), getenv(names[2])); };
  EXPECT_EQ(said(), "32 EAGER EAGER");
  for (const char* name : names) setenv(name, "mine", 1);
  device::expect_waiting_kernels();
  EXPECT_EQ(said(), "mine mine mine");
  for (const char* name : names) unsetenv(name);
}

}  // namespace
}  // namespace megalith::test
