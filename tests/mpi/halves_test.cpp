// Schedules whose backward passes have two halves give the bits of 1F1B, on every number of ranks that is a pipeline;
// with chunks in turn, and as a V.
#include <set>
#include <sstream>

#include "kernels/linear/gemm_cpu.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/planner/dry_run.h"

namespace megalith {
namespace {

using enum ShardingStrategy;

struct Case {
  std::string name;
  int tensor, pipeline;
  ShardingStrategy strategy;
  int shards;
  std::function<void(Config&)> change;
};

// In 1F1B, products for the gradients of inputs are whole; in halves they are cut.
std::vector<Case> cases_in_pieces() {
  if (!cpu::rows_keep_their_bits()) return {};
  const auto in_pieces = [](const auto& change) {
    return [=](Config& c) {
      c.batch.microbatch_size = 4;
      c.parallel.tensor_pieces = 2;
      change(c);
    };
  };
  const auto beside_fp32 = [](Config& c) {
    c.parallel.sequence_parallel = true;
    c.precision.compute = ComputeType::bf16;
    c.precision.residual = ResidualType::fp32;
  };
  const auto adapters = [](Config& c) {
    c.parallel.sequence_parallel = true;
    c.model.adapter.rank = 2;
    c.model.adapter.dropout = 0.1;
  };
  return {
      {"tensor in pieces", 2, 2, full_shard, 0, in_pieces([](Config&) {})},
      {"sequence in pieces", 2, 2, full_shard, 0, in_pieces([](Config& c) { c.parallel.sequence_parallel = true; })},
      {"sequence of fp32 residuals in pieces", 2, 2, shard_optimizer, 0, in_pieces(beside_fp32)},
      {"adapters in pieces", 2, 2, full_shard, 0, in_pieces(adapters)}};
}

std::vector<Case> cases() {
  using Kind = ActivationCheckpointing::Kind;
  const auto nothing = [](Config&) {};
  const auto chunks = [](Config& c) { c.parallel.virtual_stages = 2; };
  const auto in_bf16 = [](Config& c) { c.precision.compute = ComputeType::bf16; };
  const auto recomputed = [](ActivationCheckpointing::Kind kind, int64_t size, bool offload) {
    return [=](Config& c) {
      c.memory.activation_checkpointing = {kind, size};
      c.memory.offload_activations = offload;
      c.parallel.virtual_stages = 2;
    };
  };
  return {
      {"whole", 1, 2, no_shard, 0, nothing},
      {"without dropout", 1, 2, full_shard, 0, [](Config& c) { c.model.dropout = 0; }},
      {"without dropout in fp32 beside bf16", 1, 2, no_shard, 0,
       [=](Config& c) {
         in_bf16(c);
         c.model.dropout = 0;
         c.precision.residual = ResidualType::fp32;
       }},
      {"of four", 1, 4, no_shard, 0, in_bf16},
      {"of eight", 1, 8, no_shard, 0, nothing},
      {"of three in chunks", 1, 3, shard_optimizer, 0, chunks},
      {"in chunks", 1, 2, no_shard, 0, chunks},
      {"in chunks in bf16", 1, 4, no_shard, 0,
       [=](Config& c) {
         chunks(c);
         in_bf16(c);
       }},
      {"full_shard", 1, 2, full_shard, 2, chunks},
      {"shard_grad_op", 1, 2, shard_grad_op, 0, in_bf16},
      {"shard_optimizer", 1, 2, shard_optimizer, 0, chunks},
      {"in a narrow reduction", 1, 2, full_shard, 0,
       [](Config& c) { c.precision.gradient_reduce = StorageType::bf16; }},
      {"tensor", 2, 2, full_shard, 1, chunks},
      {"sequence", 2, 2, full_shard, 0,
       [=](Config& c) {
         c.parallel.sequence_parallel = true;
         in_bf16(c);
       }},
      {"sequence of fp32 residuals", 2, 2, shard_optimizer, 0,
       [=](Config& c) {
         c.parallel.sequence_parallel = true;
         c.precision.residual = ResidualType::fp32;
         in_bf16(c);
       }},
      {"recomputed", 1, 2, full_shard, 0, recomputed(Kind::each, 0, false)},
      {"recomputed and offloaded", 1, 4, no_shard, 0, recomputed(Kind::each, 0, true)},
      {"recomputed in part", 1, 2, full_shard, 0, recomputed(Kind::selective, 0, false)},
      {"recomputed in groups", 1, 2, shard_optimizer, 0, recomputed(Kind::group, 3, true)},
      {"few active", 1, 4, no_shard, 0, [](Config& c) { c.parallel.active_microbatches = 2; }},
      {"uneven layers", 1, 2, full_shard, 0, [](Config& c) { c.parallel.layers_per_stage = "2 6"; }},
      {"optimizer on the host", 1, 2, no_shard, 0, [](Config& c) { c.memory.offload_optimizer = 1; }},
      {"ends of their own", 1, 2, full_shard, 0, [](Config& c) { c.model.tied_head = false; }},
      {"another family", 1, 2, full_shard, 0,
       [=](Config& c) {
         chunks(c);
         c.model.norm = NormKind::rms;
         c.model.positions = Positions::rotary;
         c.model.activation = Activation::swiglu;
         c.model.query_key_norm = true;
         c.model.bias = c.model.qkv_bias = false;
         c.model.parallel_residual = true;
         c.model.head_size = 4;
       }},
      {"adapters", 1, 2, full_shard, 0,
       [](Config& c) {
         c.model.adapter.rank = 2;
         c.model.adapter.dropout = 0.1;
       }},
      {"documents", 1, 2, shard_grad_op, 0, [](Config& c) { c.data.isolate_documents = true; }},
      {"frozen in part", 1, 2, full_shard, 0,
       [](Config& c) { c.train.freeze = "h.0\nh.5.*\nh.2.mlp.*\nwte.weight\n"; }},
      {"muon", 1, 2, full_shard, 0, [](Config& c) { c.optimizer.algorithm = Algorithm::muon; }},
      {"fp16", 1, 2, shard_optimizer, 0, [](Config& c) { c.precision.compute = ComputeType::fp16; }},
  };
}

// Returns the weights of all ranks: of each parameter, by its name, what each tensor rank has of it, as a hash.
std::set<std::string> weights_of_all(SmallRun& run) {
  std::string mine;
  for (const auto& [name, values] : gathered(run, &Unit::master)) {
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    mine +=
        fmt::format("{} of tensor rank {}: {:x}\n", name, run.plan.tensor.rank, std::hash<std::string_view>()(bytes));
  }
  std::set<std::string> all;
  for (const std::string& rank : session().all_gather_text(mine)) {
    std::istringstream lines(rank);
    for (std::string line; std::getline(lines, line);) all.insert(line);
  }
  return all;
}

// Three steps and an evaluation, with the memory and the trace that were planned.
void expect_same(SmallRun& whole, const std::vector<StepScalars>& steps, const Config& config) {
  SmallRun halves = on_all_ranks(config);
  for (int64_t s : {0, 1, 2}) {
    if (s == 0) halves.runtime.stream.trace().keep(TraceLevel::everything);
    const StepScalars same = halves.step(s);
    if (s == 0) {
      EXPECT_EQ(halves.runtime.stream.trace().events(), rehearse(config, halves.plan, TraceLevel::everything).trace);
    }
    halves.runtime.stream.trace().keep(TraceLevel::off);
    EXPECT_EQ(same.loss, steps[static_cast<size_t>(s)].loss) << "step " << s;
    EXPECT_EQ(same.grad_norm, steps[static_cast<size_t>(s)].grad_norm) << "step " << s;
  }
  EXPECT_EQ(weights_of_all(halves), weights_of_all(whole));
  EXPECT_EQ(halves.evaluate(7), whole.evaluate(7));
  EXPECT_EQ(halves.runtime.memory.peaks(), halves.rehearsal.memory) << "planned to the byte";
  const DryRun dry = dry_run(config, session().size());
  EXPECT_TRUE(dry.faults.empty()) << dry.faults.front();
}

// The same run with its layers as a V, if it has enough of them: one kind for each case.
std::optional<Config> as_v(Config config, PipelineSchedule kind) {
  config.parallel.pipeline_schedule = kind;
  config.parallel.virtual_stages = 2;
  // Where 1F1B has few active ones, a V has more than it needs.
  const bool more = kind == PipelineSchedule::zb_v && config.parallel.active_microbatches > 0;
  config.parallel.active_microbatches = more ? config.parallel.pipeline_parallel_degree + 2 : 0;
  if (!config.parallel.layers_per_stage.empty()) config.parallel.layers_per_stage = "1 3 2 2";
  return is_valid(config) ? std::optional(config) : std::nullopt;
}

TEST(Halves, GiveTheBitsOfOneForwardOneBackward) {
  size_t ran = 0, in_v = 0;
  std::vector<Case> all = cases();
  for (Case& more : cases_in_pieces()) all.push_back(std::move(more));
  for (const Case& each : all) {
    std::optional<Config> config = laid_out(deep_model(24), each.tensor, each.pipeline, each.strategy, each.shards);
    if (!config) continue;
    each.change(*config);
    *config = resolve(*config);
    SCOPED_TRACE(each.name + ": " + described(*config));
    SmallRun whole = on_all_ranks(*config);
    const std::vector<StepScalars> steps{whole.step(0), whole.step(1), whole.step(2)};
    const PipelineSchedule kind = ran % 2 == 0 ? PipelineSchedule::zb_v : PipelineSchedule::v_half;
    config->parallel.pipeline_schedule = PipelineSchedule::zb_h1;
    expect_same(whole, steps, *config);
    if (const auto v = as_v(*config, kind)) {
      SCOPED_TRACE(to_string(kind));
      expect_same(whole, steps, *v);
      in_v++;
    }
    ran++;
  }
  EXPECT_GE(ran, session().size() % 2 == 0 ? 15 : 0);
  EXPECT_GE(in_v, session().size() % 2 == 0 ? 15 : 0);
}

}  // namespace
}  // namespace megalith
