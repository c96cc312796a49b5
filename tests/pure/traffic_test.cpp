// Traffic against theory: what crosses which links in a step.
#include <gtest/gtest.h>

#include "trainer/planner/traffic.h"

#include "tests/pure/small_run.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

constexpr int64_t layers = 6, microbatches = 2;

Config model(int ranks, int ranks_per_node) {
  Config config = small_config();
  config.model = {.layers = layers, .hidden = 12, .heads = 6, .vocab = 31, .context = 12, .dropout = 0};
  config.batch = {.sequence_length = 12, .global_batch_size = microbatches * ranks, .microbatch_size = 1};
  config.parallel.ranks_per_node = ranks_per_node;
  return config;
}

struct Job {
  Plan plan;
  std::vector<RankTraffic> ranks;

  Job(const Config& config, int n) : plan(make_plan(config, n, 0)) {
    const DryRun run = dry_run(config, n);
    EXPECT_TRUE(run.faults.empty()) << run.faults.front();
    ranks = traffic_of(run.mesh, run.traces);
  }
  Traffic of(int rank, Channel channel, Transfer transfer) const {
    const auto found = ranks[static_cast<size_t>(rank)].find({channel, transfer});
    return found == ranks[static_cast<size_t>(rank)].end() ? Traffic{} : found->second;
  }
  Traffic all(Channel channel, Transfer transfer) const {
    Traffic sum;
    for (size_t rank = 0; rank < ranks.size(); rank++) sum += of(static_cast<int>(rank), channel, transfer);
    return sum;
  }
  // Bytes in f32 of all parameters, padding included, and of those that one step gathers: the ends of the model and two
  // layers once, the other layers in each forward and each backward.
  double parameters() const {
    double sum = 0;
    for (const UnitPlan& unit : plan.units) sum += 4 * static_cast<double>(unit.numel);
    return sum;
  }
  double gathered() const {
    const double block = 4 * static_cast<double>(plan.units[plan.chunks[0].first_unit].numel);
    return parameters() + static_cast<double>(2 + 2 * microbatches * (layers - 2) - layers) * block;
  }
};

// Ring: each rank sends (N-1)/N of what is gathered and of what is scattered, and the ring leaves each node once.
TEST(Traffic, OfFullShardIsThatOfRings) {
  for (int ranks : {2, 4, 8})
    for (int ranks_per_node : {0, 2, 4}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} a node", ranks, ranks_per_node));
      if (ranks_per_node > ranks) continue;
      const Job job(model(ranks, ranks_per_node), ranks);
      const double share = static_cast<double>(ranks - 1) / ranks;
      const int nodes = ranks_per_node ? ranks / ranks_per_node : 1, crossings = nodes > 1 ? nodes : 0;
      const auto expect = [&](Transfer transfer, double payload) {
        for (int rank = 0; rank < ranks; rank++) {
          const Traffic t = job.of(rank, Channel::shard, transfer);
          const bool last_of_node = crossings && (rank + 1) % ranks_per_node == 0;
          EXPECT_NEAR(t.payload, payload, 1e-9 * payload) << name_of(transfer);
          EXPECT_NEAR(t.in_node, last_of_node ? 0 : share * payload, 1e-9 * payload) << name_of(transfer);
          EXPECT_NEAR(t.between_nodes, last_of_node ? share * payload : 0, 1e-9 * payload) << name_of(transfer);
        }
        const Traffic all = job.all(Channel::shard, transfer);
        EXPECT_NEAR(all.sent(), (ranks - 1) * payload, 1e-9 * payload);
        EXPECT_NEAR(all.between_nodes, crossings * share * payload, 1e-9 * payload);
      };
      expect(Transfer::all_gather, job.gathered());
      expect(Transfer::reduce_scatter, microbatches * job.parameters());
    }
}

// In bf16 half as many bytes leave each rank on the way to sums; weights travel as before.
TEST(Traffic, OfGradientsInBf16IsHalf) {
  for (int degree : {2, 4, 8}) {
    Config config = model(8, 0);
    config.model.hidden = 192;  // so that padding is nothing beside it
    config.parallel.sharded_data_parallel_degree = degree;
    const Job wide(config, 8);
    config.precision.gradient_reduce = StorageType::bf16;
    const Job narrow(config, 8);
    const double padding = narrow.parameters() / wide.parameters();
    EXPECT_LE(padding, 1.01);
    for (int rank = 0; rank < 8; rank++) {
      const auto sent = [rank](const Job& job, Channel channel, std::initializer_list<Transfer> transfers) {
        double sum = 0;
        for (Transfer transfer : transfers) sum += job.of(rank, channel, transfer).sent();
        return sum;
      };
      const auto [reduce_scatter, all_reduce, all_to_all, all_gather] =
          std::tuple(Transfer::reduce_scatter, Transfer::all_reduce, Transfer::all_to_all, Transfer::all_gather);
      const double scattered = sent(wide, Channel::shard, {reduce_scatter});
      EXPECT_GT(scattered, 0);
      EXPECT_NEAR(sent(narrow, Channel::shard, {all_to_all}), padding * scattered / 2, 1e-9 * scattered);
      const double summed = sent(wide, Channel::data, {all_reduce});
      EXPECT_EQ(summed > 0, degree < 8);
      EXPECT_NEAR(sent(narrow, Channel::data, {all_to_all, all_gather}), padding * summed / 2, 1e-9 * summed);
      EXPECT_EQ(sent(narrow, Channel::shard, {reduce_scatter}) + sent(narrow, Channel::data, {all_reduce}), 0);
      const double gathered = sent(wide, Channel::shard, {all_gather});
      EXPECT_NEAR(sent(narrow, Channel::shard, {all_gather}), padding * gathered, 0.01 * gathered);
    }
  }
}

// Added up inside each node first, gradients leave it once, in half as many bytes as around a ring.
TEST(Traffic, OfGradientsInBf16LeavesEachNodeOnce) {
  for (int ranks_per_node : {1, 2, 4}) {
    Config config = model(8, ranks_per_node);
    config.precision.gradient_reduce = StorageType::bf16;
    const Job job(config, 8);
    const double payload = microbatches * job.parameters() / 2;
    const int nodes = 8 / ranks_per_node;
    if (ranks_per_node == 1) {
      EXPECT_NEAR(job.all(Channel::shard, Transfer::all_to_all).between_nodes, 7 * payload, 1e-9 * payload);
      continue;
    }
    EXPECT_EQ(job.all(Channel::shard, Transfer::all_to_all).calls, 0);
    EXPECT_NEAR(job.all(Channel::in_node, Transfer::all_to_all).in_node, (8 - nodes) * payload, 1e-9 * payload);
    EXPECT_EQ(job.all(Channel::in_node, Transfer::all_to_all).between_nodes, 0);
    EXPECT_NEAR(job.all(Channel::between_nodes, Transfer::all_to_all).between_nodes, (nodes - 1) * payload,
                1e-9 * payload);
  }
}

// MiCS (Zhang et al., arXiv 2205.00119): with groups inside a node, no parameter crosses nodes; only the sum of the
// gradients does, of each shard between its copies, once a step.
TEST(Traffic, OfGroupsInsideNodesKeepsParametersInside) {
  for (int degree : {2, 4}) {
    Config config = model(8, 4);
    config.parallel.sharded_data_parallel_degree = degree;
    const Job job(config, 8);
    const int copies = 8 / degree;
    for (const RankTraffic& rank : job.ranks)
      for (const auto& [what, traffic] : rank)
        if (what.first != Channel::data && what.first != Channel::world) {
          EXPECT_EQ(traffic.between_nodes, 0) << name_of(what.first) << " " << name_of(what.second);
        }
    for (Transfer transfer : {Transfer::all_gather, Transfer::reduce_scatter})
      EXPECT_GT(job.all(Channel::shard, transfer).in_node, 0);
    const Traffic sums = job.all(Channel::data, Transfer::all_reduce);
    EXPECT_NEAR(sums.sent(), 2.0 * (copies - 1) * job.parameters(), 1e-9 * sums.sent());
    EXPECT_GT(sums.between_nodes, 0);

    config.parallel.sharded_data_parallel_degree = 8;  // the claim is about the groups
    EXPECT_GT(Job(config, 8).all(Channel::shard, Transfer::all_gather).between_nodes, 0);
  }
}

// In two levels each rank's message between nodes is of the parts at its place only, and the bytes that cross are
// nodes - 1 times the whole; a flat ring takes all of it across each of the `nodes` borders.
TEST(Traffic, OfTwoLevelGathersCrossesNodesOncePerPart) {
  for (int ranks_per_node : {2, 4}) {
    Config config = model(8, ranks_per_node);
    const Job flat(config, 8);
    config.parallel.hierarchical_allgather = true;
    const Job job(config, 8);
    const int nodes = 8 / ranks_per_node;
    const double gathered = job.gathered();
    EXPECT_EQ(job.all(Channel::shard, Transfer::all_gather).calls, 0);
    for (int rank = 0; rank < 8; rank++) {
      const Traffic between = job.of(rank, Channel::between_nodes, Transfer::all_gather),
                    inside = job.of(rank, Channel::in_node, Transfer::all_gather);
      EXPECT_NEAR(between.payload, gathered / ranks_per_node, 1e-9 * gathered);
      EXPECT_NEAR(inside.payload, gathered, 1e-9 * gathered);
      EXPECT_EQ(between.in_node, 0);
      EXPECT_EQ(inside.between_nodes, 0);
    }
    const double crossing = job.all(Channel::between_nodes, Transfer::all_gather).between_nodes;
    EXPECT_NEAR(crossing, (nodes - 1) * gathered, 1e-9 * gathered);
    EXPECT_NEAR(flat.all(Channel::shard, Transfer::all_gather).between_nodes, nodes * 7.0 / 8 * gathered,
                1e-9 * gathered);
  }
}

// Tensor ranks are innermost: their sums stay inside, and the stages' messages cross.
TEST(Traffic, OfTensorInsideAndPipelineAcross) {
  Config config = model(4, 2);
  config.parallel.tensor_parallel_degree = 2;
  config.parallel.pipeline_parallel_degree = 2;
  const Job job(config, 4);
  const double residual = 4.0 * 12 * 12 * static_cast<double>(job.plan.batch.microbatch);
  const auto sends = static_cast<double>(job.plan.batch.num_microbatches());
  for (int rank = 0; rank < 4; rank++) {
    const Traffic forward = job.of(rank, Channel::forward, Transfer::send);
    EXPECT_EQ(forward.in_node, 0);
    if (rank < 2) {
      EXPECT_GE(forward.between_nodes, sends * residual);
    }
    EXPECT_GT(job.of(rank, Channel::tensor, Transfer::all_reduce).in_node, 0);
    EXPECT_EQ(job.of(rank, Channel::tensor, Transfer::all_reduce).between_nodes, 0);
  }
}

// They are the rank's own business: counted, shown where there are any, and sent to nobody.
TEST(Traffic, CopiesToTheHostAreCountedAndCrossNoLink) {
  const MeshShape mesh{.shard = 2};
  DryRun run;
  for (int rank = 0; rank < 2; rank++) {
    Stream s(World::dry);
    s.trace().keep(TraceLevel::transfers);
    Arena device(World::dry, "device", 0), host(World::dry, "host", 0, MemoryPlace::host);
    const Tensor x = device.tensor(DType::bf16, {1 << 20}), kept = host.tensor(DType::bf16, {1 << 20});
    Pending away = s.to_host(kept, x);
    if (rank == 0) s.to_host(kept, x).wait();
    away.wait();
    const Pending back = s.to_device(x, kept);
    run.traces.push_back(s.trace().events());
  }
  EXPECT_EQ(match(mesh, run.traces), std::vector<std::string>{});
  const std::vector<RankTraffic> ranks = traffic_of(mesh, run.traces);
  for (int64_t rank = 0; rank < 2; rank++) {
    const RankTraffic& mine = ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(mine.size(), 2u);
    EXPECT_EQ(mine.at({Channel::host, Transfer::to_host}).calls, rank == 0 ? 2 : 1);
    EXPECT_EQ(mine.at({Channel::host, Transfer::to_device}).payload, 1 << 21);
    EXPECT_EQ(mine.at({Channel::host, Transfer::to_host}).sent(), 0);
  }
  const std::string text = traffic_table(mesh, ranks);
  EXPECT_NE(text.find(fmt::format("  {:<20}{:<15}{:>3}{:>8}{:>11.4g}", "host", "to_host", 1, 2, 1.0 / 256)),
            std::string::npos)
      << text;

  // What the matcher says where they are broken.
  run.traces[1][1].id = 7;
  EXPECT_NE(fmt::format("{}", fmt::join(match(mesh, run.traces), "; ")).find("a transfer that it has not begun"),
            std::string::npos);
  run.traces[1].push_back(run.traces[1][0]);
  EXPECT_NE(
      fmt::format("{}", fmt::join(match(mesh, run.traces), "; "))
          .find("host, group of rank 1: to_host of 2097152 bytes that rank 1 (shard 1) began at event 3: another"),
      std::string::npos);
}

TraceEvent begin(Channel channel, Transfer transfer, int64_t bytes, int peer = -1) {
  return {.kind = TraceEvent::Kind::begin,
          .transfer = transfer,
          .channel = static_cast<int8_t>(channel),
          .peer = peer,
          .bytes = bytes};
}

// Groups that lie across nodes as they like: {0, 2, 4, 6} and {1, 3, 5, 7} on nodes {0, 1, 2}, {3, 4, 5}, {6, 7}.
TEST(Traffic, IsClassifiedByTheNodesOfBothEnds) {
  const MeshShape mesh{.tensor = 2, .pipeline = 4, .ranks_per_node = 3};
  Traces traces(8);
  for (auto& trace : traces)
    trace = {begin(Channel::forward, Transfer::all_reduce, 400), begin(Channel::tensor, Transfer::all_gather, 10),
             begin(Channel::forward, Transfer::all_to_all, 400)};
  traces[2].push_back(begin(Channel::forward, Transfer::send, 7, 2));  // to rank 4
  traces[2].push_back(begin(Channel::forward, Transfer::send, 9, 0));  // to rank 0
  traces[4].push_back(begin(Channel::forward, Transfer::recv, 7, 1));
  const std::vector<RankTraffic> ranks = traffic_of(mesh, traces);
  const std::vector<bool> crosses_forward = {false, true, true, false, true, true, true, true};
  const std::vector<bool> crosses_tensor = {false, false, true, true, false, false, false, false};
  for (size_t rank = 0; rank < 8; rank++) {
    const Traffic& sum = ranks[rank].at({Channel::forward, Transfer::all_reduce});
    EXPECT_EQ(sum.between_nodes, crosses_forward[rank] ? 600 : 0) << rank;
    EXPECT_EQ(sum.in_node, crosses_forward[rank] ? 0 : 600) << rank;
    const Traffic& gather = ranks[rank].at({Channel::tensor, Transfer::all_gather});
    EXPECT_EQ(gather.between_nodes, crosses_tensor[rank] ? 5 : 0) << rank;
    EXPECT_EQ(gather.in_node, crosses_tensor[rank] ? 0 : 5) << rank;
    // Ranks 0 and 2, and of the others 3 and 5, have a member beside them.
    const bool has_company = rank == 0 || rank == 2 || rank == 3 || rank == 5;
    const Traffic& exchange = ranks[rank].at({Channel::forward, Transfer::all_to_all});
    EXPECT_EQ(exchange.in_node, has_company ? 100 : 0) << rank;
    EXPECT_EQ(exchange.between_nodes, has_company ? 200 : 300) << rank;
  }
  const Traffic& sends = ranks[2].at({Channel::forward, Transfer::send});
  EXPECT_EQ(sends.calls, 2);
  EXPECT_EQ(sends.payload, 16);
  EXPECT_EQ(sends.between_nodes, 7);
  EXPECT_EQ(sends.in_node, 9);
  EXPECT_EQ(ranks[4].at({Channel::forward, Transfer::recv}).sent(), 0);
}

TEST(Traffic, TableSumsTheJobAndNamesTheBusiestNode) {
  const MeshShape mesh{.shard = 4, .ranks_per_node = 2};
  Traces traces(4, {begin(Channel::shard, Transfer::all_gather, int64_t{4} << 30)});
  traces[3].push_back(begin(Channel::shard, Transfer::send, int64_t{1} << 30, mesh.position(0, Channel::shard).index));
  const std::string table = traffic_table(mesh, traffic_of(mesh, traces));
  // Each of 4 hops carries 3 GiB, and two of them cross.
  EXPECT_NE(table.find("all_gather       4       1          4          0          3             6          6"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("node 1 sends most to others: 4 GiB"), std::string::npos) << table;
  EXPECT_EQ(traffic_table({.shard = 2}, traffic_of({.shard = 2}, Traces(2))), "traffic: none\n");
}

TEST(RingBytes, AreWhatARankSends) {
  EXPECT_EQ(ring_bytes(Transfer::all_gather, 800, 8), 700);
  EXPECT_EQ(ring_bytes(Transfer::reduce_scatter, 800, 8), 700);
  EXPECT_EQ(ring_bytes(Transfer::all_to_all, 800, 8), 700);
  EXPECT_EQ(4 * ring_bytes(Transfer::all_gather_of, 200, 8), 700) << "the parts together send what the whole does";
  EXPECT_EQ(4 * ring_bytes(Transfer::reduce_scatter_to, 200, 8), 700);
  EXPECT_EQ(ring_bytes(Transfer::all_reduce, 800, 8), 1400);
  EXPECT_EQ(ring_bytes(Transfer::broadcast, 800, 8), 800);
  EXPECT_EQ(ring_bytes(Transfer::send, 800, 8), 800);
  EXPECT_EQ(ring_bytes(Transfer::recv, 800, 8), 0);
  EXPECT_EQ(ring_bytes(Transfer::barrier, 0, 8), 0);
  for (Transfer t : {Transfer::all_gather, Transfer::reduce_scatter, Transfer::all_reduce, Transfer::all_to_all,
                     Transfer::broadcast})
    EXPECT_EQ(ring_bytes(t, 800, 1), 0) << name_of(t);
}

}  // namespace
}  // namespace megalith
