// The laws of the time line, on traces made by hand, where the answer is known.
#include "trainer/planner/time_line.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainer/schedule/schedule.h"

namespace megalith {
namespace {

using Kind = TraceEvent::Kind;

// A second for each 1e9 bytes of memory, of a link inside the node and of the network; nothing else takes time.
Hardware unit_hardware() {
  Hardware h;
  h.device = {.name = "unit",
              .per_node = 2,
              .memory = 1,
              .reserved = 0,
              .bandwidth = 1,
              .bf16 = 1e-3,
              .fp16 = 1e-3,
              .fp32 = 1e-3,
              .multiprocessors = 1};
  h.host = {.memory = 1, .link = 1};
  h.node = {.link = 1, .topology = Topology::switched, .latency = 0};
  h.network = {.link = 1, .latency = 0};
  h.calibrated = {.gemm = 1,
                  .memory = 1,
                  .node_link = 1,
                  .network_link = 1,
                  .collective_delay = 0,
                  .overlap = 0,
                  .launch = 0,
                  .microbatch = 0,
                  .step = 0};
  return h;
}

TraceEvent op(double seconds) { return {.kind = Kind::op, .op = "op", .cost = {.bytes = seconds * 1e9}}; }
TraceEvent begins(Channel channel, Transfer transfer, int id, double seconds, int peer = -1) {
  return {.kind = Kind::begin,
          .transfer = transfer,
          .channel = static_cast<int8_t>(channel),
          .peer = peer,
          .id = id,
          .bytes = std::llround(seconds * 1e9)};
}
TraceEvent wait(int id) { return {.kind = Kind::wait, .id = id}; }

TimeLine play(const MeshShape& mesh, const std::vector<std::vector<TraceEvent>>& traces, const Hardware& hardware) {
  std::vector<StageTrace> stages;
  for (size_t i = 0; i < traces.size(); i++) stages.push_back(stage_trace(static_cast<int>(i), traces[i]));
  return time_line(mesh, stages, hardware, processor_of(hardware, ComputeType::fp32, 0));
}

const MeshShape two_shards{.shard = 2}, two_stages{.pipeline = 2};

// A gather of 2 s over a ring of two sends half of it.
TEST(TimeLine, ATransferHidesBehindWork) {
  Hardware h = unit_hardware();
  const std::vector<std::vector<TraceEvent>> trace = {
      {begins(Channel::shard, Transfer::all_gather, 0, 6), op(2), wait(0), op(1)}};
  TimeLine line = play(two_shards, trace, h);
  EXPECT_DOUBLE_EQ(line.seconds, 4);  // 3 s of transfer, of which 1 is waited for, and 1 s of work after it
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::gathers), 1);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::elementwise), 3);

  h.calibrated.overlap = 0.5;  // max(2, 3) + 0.5 min(2, 3), and 1
  line = play(two_shards, trace, h);
  EXPECT_DOUBLE_EQ(line.seconds, 5);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::slowed), 1);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::gathers), 1);
}

TEST(TimeLine, TransfersOfOneLinkShareItAndThoseOfOneChannelQueue) {
  const Hardware h = unit_hardware();
  const TraceEvent gather = begins(Channel::shard, Transfer::all_gather, 0, 4);  // 2 s
  EXPECT_DOUBLE_EQ(
      play(two_shards, {{gather, begins(Channel::shard, Transfer::reduce_scatter, 1, 2), wait(1)}}, h).seconds, 3);
  const MeshShape both{.shard = 2, .data = 2};
  const TimeLine line = play(both, {{gather, begins(Channel::data, Transfer::all_reduce, 1, 1), wait(1), wait(0)}}, h);
  EXPECT_DOUBLE_EQ(line.seconds, 3);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::copy_sums), 2) << "1 s at half the rate";
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::gathers), 1);
}

TEST(TimeLine, AMessageStartsWhenBothEndsHaveBegunIt) {
  const TimeLine line = play(two_stages,
                             {{op(2), begins(Channel::forward, Transfer::send, 0, 1, 1), wait(0), op(1)},
                              {begins(Channel::forward, Transfer::recv, 0, 1, 0), op(0.5), wait(0), op(4)}},
                             unit_hardware());
  EXPECT_DOUBLE_EQ(line.seconds, 7);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[1], Account::bubble), 1.5);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[1], Account::messages), 1);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::bubble), 3) << "at the end, for the other stage";
}

TEST(TimeLine, MessagesOfOneWayFollowOneAnother) {
  const TimeLine line =
      play(two_stages,
           {{begins(Channel::forward, Transfer::send, 0, 1, 1), begins(Channel::forward, Transfer::send, 1, 1, 1)},
            {begins(Channel::forward, Transfer::recv, 0, 1, 0), begins(Channel::forward, Transfer::recv, 1, 1, 0),
             wait(0), wait(1)}},
           unit_hardware());
  EXPECT_DOUBLE_EQ(line.seconds, 2);
}

TEST(TimeLine, AMessageTakesTheWayToItsPeer) {
  Hardware h = unit_hardware();
  h.network.link = 0.25;
  MeshShape mesh{.pipeline = 4};
  mesh.ranks_per_node = 2;
  const std::vector<std::vector<TraceEvent>> traces = {{begins(Channel::backward, Transfer::recv, 0, 1, 1), wait(0)},
                                                       {begins(Channel::backward, Transfer::send, 0, 1, 0)},
                                                       {},
                                                       {}};
  EXPECT_DOUBLE_EQ(play(mesh, traces, h).seconds, 1) << "though the stage after the sender's is on another node";
}

TEST(TimeLine, TheSumOverAllRanksWaitsForTheLast) {
  const auto stage = [](double seconds) {
    return std::vector<TraceEvent>{op(seconds), begins(Channel::world, Transfer::all_reduce, 0, 0), wait(0), op(1)};
  };
  const TimeLine line = play({.pipeline = 3}, {stage(1), stage(4), stage(2)}, unit_hardware());
  EXPECT_DOUBLE_EQ(line.seconds, 5);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::bubble), 3);
}

TEST(TimeLine, AnotherProgramsGradientsAndSumsCostLess) {
  Hardware h = unit_hardware();
  h.stack.gradient_bytes = 2;
  h.stack.tensor_exposed = 0.25;
  const TraceEvent scatter = begins(Channel::shard, Transfer::reduce_scatter, 0, 4);  // 2 s in f32
  EXPECT_DOUBLE_EQ(play(two_shards, {{scatter, wait(0)}}, h).seconds, 1);
  const TraceEvent sum = begins(Channel::tensor, Transfer::all_reduce, 0, 4);  // 4 s
  EXPECT_DOUBLE_EQ(play({.tensor = 2}, {{sum, wait(0)}}, h).seconds, 1);
}

TEST(TimeLine, TheHostLaunchesNoFasterThanItCan) {
  Hardware h = unit_hardware();
  h.calibrated.launch = 1e6;
  const TimeLine line = play({}, {{op(0.25), op(3), op(0.25)}}, h);
  EXPECT_DOUBLE_EQ(line.seconds, 5.25);  // 1 + 0.25, waits to 2, 3, and the third is launched by then
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::launches), 1.75);

  h.device.kind = DeviceKind::cpu;  // which launches nothing ahead
  EXPECT_DOUBLE_EQ(play({}, {{op(0.25), op(3), op(0.25)}}, h).seconds, 6.5);
}

TEST(TimeLine, CountsTheCopiesThatWorkHides) {
  const auto copy = [](int id, double seconds) { return begins(Channel::host, Transfer::to_host, id, seconds); };
  const TimeLine line =
      play({}, {{copy(0, 2), op(3), wait(0), copy(1, 2), op(1), wait(1), copy(2, 2), wait(2)}}, unit_hardware());
  EXPECT_DOUBLE_EQ(line.seconds, 7);
  EXPECT_DOUBLE_EQ(at(line.breakdowns[0], Account::host_copies), 3);
  EXPECT_EQ(line.copies[0].all, 3);
  EXPECT_EQ(line.copies[0].hidden, 1);
}

// Narayanan et al., arXiv 2104.04473: of m microbatches over p equal stages, (p - 1) / m of the work is bubble.
TEST(TimeLine, OneForwardOneBackwardHasTheBubbleOfTheBooks) {
  constexpr int stages = 4, microbatches = 6;
  const MeshShape mesh{.pipeline = stages};
  std::vector<std::vector<TraceEvent>> traces(stages);
  const auto schedules = make_schedules({.stages = stages, .microbatches = microbatches});
  for (int stage = 0; stage < stages; stage++) {
    int id = 0;
    auto& trace = traces[static_cast<size_t>(stage)];
    const auto message = [&](Channel channel, Transfer transfer, int peer) {
      trace.push_back(begins(channel, transfer, id, 0, peer));
      if (transfer == Transfer::recv) trace.push_back(wait(id));
      id++;
    };
    for (const Action& a : schedules[static_cast<size_t>(stage)]) {
      const bool forward = a.kind == Action::Kind::forward;
      const Channel channel = forward ? Channel::forward : Channel::backward;
      const int from = forward ? stage - 1 : stage + 1, to = forward ? stage + 1 : stage - 1;
      if (from >= 0 && from < stages) message(channel, Transfer::recv, from);
      trace.push_back(op(forward ? 1 : 2));
      if (to >= 0 && to < stages) message(channel, Transfer::send, to);
    }
  }
  const TimeLine line = play(mesh, traces, unit_hardware());
  EXPECT_DOUBLE_EQ(line.seconds, 3 * (microbatches + stages - 1));
  for (const Accounts& stage : line.breakdowns) EXPECT_DOUBLE_EQ(at(stage, Account::bubble), 3 * (stages - 1));
}

}  // namespace
}  // namespace megalith
