// Copies between device and host in the worlds without a GPU: when they are made, what the trace has of them, and what
// is refused.
#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "tests/message_of.h"
#include "tests/pure/ops_under.h"
#include "trainer/communication/communicator.h"
#include "trainer/parallel/runtime.h"

namespace megalith {
namespace {

using Kind = TraceEvent::Kind;

// A stream, and memory in both places.
struct Desk {
  explicit Desk(World world)
      : s(world), device(world, "device", 1 << 16), host(world, "host", 1 << 16, MemoryPlace::host) {
    s.trace().keep(TraceLevel::everything);
  }
  Tensor on_device(int64_t n = 100) { return device.tensor(DType::f32, {n}); }
  Tensor on_host(int64_t n = 100) { return host.tensor(DType::f32, {n}); }

  Stream s;
  Arena device, host;
};

std::vector<float> values(Tensor t) { return {t.data<float>(), t.data<float>() + t.numel()}; }
std::vector<float> all(float value) { return std::vector<float>(100, value); }

// So a tensor that is read before, or changed too early, has wrong numbers here as on a GPU.
TEST(HostCopies, OnTheCpuAreMadeWhenTheyAreWaitedFor) {
  Desk d(World::cpu);
  const Tensor x = d.on_device(), y = d.on_device(), kept = d.on_host();
  launch(d.s, Fill{.y = x, .value = 1});
  launch(d.s, Fill{.y = kept, .value = -1});
  Pending away = d.s.to_host(kept, x);
  EXPECT_EQ(values(kept), all(-1));
  away.wait();
  EXPECT_EQ(values(kept), all(1));
  launch(d.s, Fill{.y = x, .value = 2});
  away.wait();
  EXPECT_EQ(values(kept), all(1)) << "waited for twice, copied once";
  { const Pending back = d.s.to_device(y, kept); }
  EXPECT_EQ(values(y), all(1)) << "one that nobody waited for has waited at its end";
  Pending first = d.s.to_host(kept, x);
  first = d.s.to_device(y, kept);
  EXPECT_EQ(values(kept), all(2)) << "as the one has that another takes the place of";
  Stream moved = std::move(d.s);
  first.wait();
  EXPECT_EQ(values(y), all(2));
  EXPECT_EQ(moved.trace().events().back().kind, Kind::wait);
}

TEST(HostCopies, AreTransfersOfTheTraceInEveryWorld) {
  std::vector<TraceEvent> traces[2];
  for (World world : {World::cpu, World::dry}) {
    Desk d(world);
    const Tensor x = d.on_device(), kept = d.on_host();
    launch(d.s, Fill{.y = x, .value = 1});
    Pending away = d.s.to_host(kept, x);
    launch(d.s, Fill{.y = d.on_device(), .value = 2});
    launch(d.s, Fill{.y = d.on_device(), .value = 3});
    away.wait();
    Pending back = d.s.to_device(x, kept);
    back.wait();
    back.wait();
    const std::vector<TraceEvent> trace = traces[world == World::dry] = d.s.trace().events();
    ASSERT_EQ(trace.size(), 7u);
    EXPECT_EQ(trace[1],
              (TraceEvent{
                  .kind = Kind::begin, .transfer = Transfer::to_host, .channel = host_channel, .id = 0, .bytes = 400}));
    EXPECT_EQ(trace[4], (TraceEvent{.kind = Kind::wait, .id = 0}));
    EXPECT_EQ(trace[5].transfer, Transfer::to_device);
    EXPECT_STREQ(name_of(trace[5].transfer), "to_device");
    EXPECT_EQ(trace[6], (TraceEvent{.kind = Kind::wait, .id = 1}));
    EXPECT_EQ(ops_under(trace, 0), 2) << "what hides it";
    EXPECT_EQ(transfers_on(trace, host_channel).size(), 2u);
    EXPECT_EQ(d.s.log().size(), 1u) << "no op";
  }
  EXPECT_EQ(traces[0], traces[1]);
}

// One notion of what is under way: a gather goes behind a copy as it goes behind another gather.
TEST(HostCopies, AGatherGoesBehindOne) {
  Desk d(World::cpu);
  const Tensor part = d.on_device(), whole = d.on_device(), kept = d.on_host();
  launch(d.s, Fill{.y = kept, .value = 5});
  const auto alone = self_communicator("alone");
  Pending gathered = alone->all_gather(d.s, whole, part, d.s.to_device(part, kept));
  gathered.wait();
  EXPECT_EQ(values(whole), all(5));
}

TEST(HostCopies, AnExceptionOnItsWayWaitsForNone) {
  Desk d(World::cpu);
  const Tensor x = d.on_device(), kept = d.on_host();
  launch(d.s, Fill{.y = x, .value = 1});
  launch(d.s, Fill{.y = kept, .value = -1});
  const auto step = [&] {
    const Pending away = d.s.to_host(kept, x);
    FAIL("the step failed");
  };
  EXPECT_THROW(step(), Error);
  EXPECT_EQ(values(kept), all(-1));
}

TEST(HostCopies, OtherSizesAndOtherTypesAreRefused) {
  for (World world : {World::cpu, World::dry}) {
    Desk d(world);
    EXPECT_EQ(message_of([&] { d.s.to_host(d.on_host(7), d.on_device(8)); }), "to_host: 8 f32 are copied to 7 f32");
    EXPECT_EQ(message_of([&] {
                d.s.to_device(d.on_device(8).view({2, 4}), d.host.tensor(DType::bf16, {8}));
              }),
              "to_device: 8 bf16 are copied to 8 f32");
    EXPECT_TRUE(d.s.trace().events().empty());
  }
}

// A rehearsal finds it, before any run.
TEST(HostCopies, TheDryWorldKnowsTheWrongPlace) {
  Desk d(World::dry);
  const Tensor x = d.on_device(), y = d.on_device(), kept = d.on_host(), other = d.on_host();
  const std::string wrong =
      "one tensor must be in an arena of the device and one in an arena of the host, for this direction";
  for (const auto& [to, from] : {std::pair(x, kept), std::pair(x, y), std::pair(kept, other)})
    EXPECT_EQ(message_of([&] { d.s.to_host(to, from); }), "to_host: " + wrong);
  for (const auto& [to, from] : {std::pair(kept, x), std::pair(x, y), std::pair(kept, other)})
    EXPECT_EQ(message_of([&] { d.s.to_device(to, from); }), "to_device: " + wrong);
  EXPECT_TRUE(d.s.trace().events().empty());
}

}  // namespace
}  // namespace megalith
