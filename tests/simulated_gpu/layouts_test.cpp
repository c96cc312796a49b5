// Several ranks, each with a simulated GPU of its own, that speak through the host or over NCCL, simulated as well:
// every mechanism of a layout, GPU against CPU, tensor by tensor.
#include <dlfcn.h>

#include <map>

#include "tests/data/scratch.h"
#include "tests/mpi/session.h"
#include "tests/pure/small_run.h"
#include "tests/simulated_nccl/faults.h"
#include "trainer/job/rank_context.h"
#include "trainer/verify/verify.h"

namespace megalith {
namespace {

class SimulatedGpuLayouts : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, SimulatedGpuLayouts, testing::Values("mpi", "nccl"));

TEST_P(SimulatedGpuLayouts, AgreeWithTheCpu) {
  if (session().size() == 1) GTEST_SKIP() << "runs under mpirun";
  const std::map<int, std::vector<std::string>> layouts{
      {2,
       {"sharding_strategy=full_shard", "precision.gradient_reduce=bf16", "precision.compute=fp16",
        "tensor_parallel_degree=2 sequence_parallel=true",
        "tensor_parallel_degree=2 tensor_pieces=2 batch.microbatch_size=8",
        "tensor_parallel_degree=2 sequence_parallel=true tensor_pieces=2 batch.microbatch_size=8",
        "pipeline_parallel_degree=2 virtual_stages=2",
        "pipeline_parallel_degree=2 virtual_stages=2 pipeline_schedule=zb_h1",
        "pipeline_parallel_degree=2 virtual_stages=2 pipeline_schedule=zb_v",
        "precision.compute=bf16 precision.residual=fp32 pipeline_parallel_degree=2",
        "precision.compute=bf16 precision.products=fp8 tensor_parallel_degree=2 model.hidden=64 model.context=16"}},
      {3,
       {"pipeline_parallel_degree=3 virtual_stages=2",
        "precision.compute=bf16 pipeline_parallel_degree=3 virtual_stages=2 pipeline_schedule=v_half",
        "pipeline_parallel_degree=3 pipeline_schedule=gpipe"}},
      {4,
       {"hierarchical_allgather=true ranks_per_node=2 max_live_parameters=9840", "sharded_data_parallel_degree=2",
        "sharded_data_parallel_degree=2 precision.gradient_reduce=bf16",
        "ranks_per_node=2 precision.gradient_reduce=bf16 memory.offload_optimizer=1 memory.offload_parameters=true",
        "sharded_data_parallel_degree=2 precision.compute=bf16 precision.master=bf16 precision.moments=bf16 "
        "precision.stochastic_rounding=true memory.offload_optimizer=0.5",
        "tensor_parallel_degree=2 pipeline_parallel_degree=2 sharding_strategy=shard_optimizer",
        "precision.compute=bf16 pipeline_parallel_degree=2 pipeline_schedule=zb_h1",
        "tensor_parallel_degree=2 sequence_parallel=true tensor_pieces=2 pipeline_parallel_degree=2 "
        "pipeline_schedule=zb_h1 batch.microbatch_size=8 batch.global_batch_size=16",
        "pipeline_parallel_degree=4 pipeline_schedule=gpipe",
        "tensor_parallel_degree=2 sharding_strategy=shard_grad_op prescaled_batch=false "
        "precision.compute=fp16 precision.residual=fp32",
        "tensor_parallel_degree=4 model.heads=4 model.key_value_heads=2",
        "tensor_parallel_degree=4 model.heads=4 sequence_parallel=true tensor_pieces=3 batch.microbatch_size=8 "
        "memory.activation_checkpointing=each",
        "tensor_parallel_degree=2 optimizer.algorithm=muon"}}};
  const test::Scratch scratch;
  VerifyOptions options;
  // Two layers a stage, where they are three.
  options.config =
      scratch.write("config.toml",
                    fmt::format("[model]\nlayers = {}\nhidden = 16\nheads = 2\nvocab = 31\ncontext = 6\ndropout = 0.1\n"
                                "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 2\n"
                                "[optimizer]\nlearning_rate = 1e-3\n",
                                session().size() == 3 ? 6 : 4));
  options.steps = 1;
  options.against = {"run.device=cpu"};
  for (const std::string& layout : layouts.at(session().size())) {
    SCOPED_TRACE(layout);
    options.overrides = {"run.device=cuda", fmt::format("communication.backend={}", GetParam())};
    for (size_t at = 0; at < layout.size(); at = std::min(layout.find(' ', at), layout.size() - 1) + 1) {
      const std::string word = layout.substr(at, layout.find(' ', at) - at);
      options.overrides.push_back((word.find('.') < word.find('=') ? "" : "parallel.") + word);
    }
    EXPECT_TRUE(run_verify(options, session()));
  }
}

// Memory that NCCL takes for messages is taken when the memory of GPUs is checked, and not by the first step.
TEST_P(SimulatedGpuLayouts, ConnectBeforeMemoryIsChecked) {
  if (session().size() != 4 || GetParam() != std::string("nccl")) GTEST_SKIP() << "4 ranks over NCCL are needed";
  auto* const faults = reinterpret_cast<decltype(&simulated_nccl_faults)>(
      dlsym(dlopen("libnccl.so.2", RTLD_NOW), "simulated_nccl_faults"))();
  using Set = void (*)(ParallelConfig&);
  for (Set set : {Set([](ParallelConfig&) {}), Set([](ParallelConfig& p) { p.sharded_data_parallel_degree = 2; }),
                  Set([](ParallelConfig& p) { p.ranks_per_node = 2; }),
                  Set([](ParallelConfig& p) { p.pipeline_parallel_degree = 2; })}) {
    Config config = small_config();
    config.run.device = Device::cuda;
    config.precision.gradient_reduce = StorageType::bf16;
    config.batch.global_batch_size = 8;
    set(config.parallel);
    RankContext work(config, session());
    work.rehearse();
    faults->connected = 0;
    work.open();
    const int connected = faults->connected;
    EXPECT_GT(connected, 0);
    work.trainer->initialize();
    StepScalars scalars;
    Stream& s = work.runtime->stream;
    s.receive(work.trainer->step(0, 0, feed_text(config, 0), {}, &scalars));
    EXPECT_EQ(faults->connected, connected);
  }
}

// Transfers cut a microbatch into several. All are replayed from the second step on.
TEST_P(SimulatedGpuLayouts, GraphsChangeNoBit) {
  if (session().size() != 2) GTEST_SKIP() << "2 ranks are needed";
  for (const auto& [strategy, fp8] : {std::pair{ShardingStrategy::full_shard, false},
                                      {ShardingStrategy::full_shard, true},
                                      {ShardingStrategy::shard_optimizer, false},
                                      {ShardingStrategy::shard_optimizer, true},
                                      {ShardingStrategy::no_shard, false}}) {
    std::vector<double> scalars[2];
    std::vector<float> weights[2];
    for (const bool graphs : {false, true}) {
      Config config = small_config();
      config.model.layers = 2;
      config.model.dropout = 0.1;
      config.batch.global_batch_size = 8;
      config.communication.backend = GetParam() == std::string("mpi") ? Backend::mpi : Backend::nccl;
      config.parallel.sharding_strategy = strategy;
      config.memory.activation_checkpointing.kind = ActivationCheckpointing::Kind::each;
      if (fp8) {
        config.model.hidden = 64;
        config.model.heads = 4;
        config.model.context = config.batch.sequence_length = 16;
        config.precision.compute = ComputeType::bf16;
        config.precision.products = ProductType::fp8;
      }
      config.run.device = Device::cuda;
      config.run.cuda_graphs = graphs;
      RankContext work(config, session());
      work.rehearse();
      work.open();
      work.trainer->initialize();
      Stream& s = work.runtime->stream;
      for (int64_t step = 0; step < 2; step++) {
        StepScalars told;
        const GraphCounts before = s.graphs();
        s.receive(work.trainer->step(step, 8 * step, feed_text(config, 8 * step), {}, &told));
        scalars[graphs].insert(scalars[graphs].end(), {told.loss, told.grad_norm});
        if (step == 1) {
          EXPECT_EQ(s.graphs() - before, work.rehearsal.graphs);
          EXPECT_EQ(work.rehearsal.graphs.ops > 0, graphs);
        }
      }
      for (const Unit& unit : work.trainer->stage().sharding().units())
        s.download("read", unit.master(), [&](Tensor host) {
          weights[graphs].insert(weights[graphs].end(), host.data<float>(), host.data<float>() + host.numel());
        });
      s.synchronize();
    }
    EXPECT_EQ(scalars[true], scalars[false]) << to_string(strategy);
    EXPECT_EQ(weights[true], weights[false]) << to_string(strategy);
  }
}

}  // namespace
}  // namespace megalith
