// A small model on all ranks of the session, as a layout has it, and its whole weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/mpi/session.h"
#include "tests/pure/small_run.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/communication/mpi.h"

namespace megalith {

// Eight layers, for pipelines; six heads, so that degrees 2, 3 and 6 divide them; a vocabulary that none of them
// divides.
inline Config deep_model(int64_t batch) {
  Config config = small_config();
  config.model = {.layers = 8, .hidden = 12, .heads = 6, .vocab = 31, .context = 13, .dropout = 0.1};
  config.batch = {.sequence_length = 12, .global_batch_size = batch, .microbatch_size = 1};
  return config;
}

// The config in a layout of these degrees, 0: all, where this number of ranks allows of it.
inline std::optional<Config> laid_out(Config c, int tensor, int pipeline, ShardingStrategy strategy, int shards = 0) {
  const int ranks = session().size(), copies = ranks / (tensor * pipeline);
  if (ranks % (tensor * pipeline) != 0 || (shards > 0 && copies % shards != 0)) return {};
  c.parallel.tensor_parallel_degree = tensor;
  c.parallel.pipeline_parallel_degree = pipeline;
  c.parallel.sharding_strategy = strategy;
  c.parallel.sharded_data_parallel_degree = shards;
  return c;
}

// Schedules whose backward passes have two halves.
inline constexpr PipelineSchedule schedules_in_halves[] = {PipelineSchedule::zb_h1, PipelineSchedule::zb_v,
                                                           PipelineSchedule::v_half};

inline SmallRun on_all_ranks(const Config& config) {
  return SmallRun(config, Mesh(mesh_shape(config, session().size()), *host_world(session())));
}

using Values = std::map<std::string, std::vector<float>>;

// Returns what this rank's units have of each parameter, gathered over the shard axis. Collective over that axis.
inline Values gathered(SmallRun& run, Tensor (Unit::*shard)() const) {
  Values all;
  Communicator& axis = run.runtime.mesh.channel(Channel::shard);
  for (Unit& unit : run.units()) {
    const Tensor mine = (unit.*shard)();
    std::vector<char> room(static_cast<size_t>(unit.plan().numel * size_of(mine.dtype())));
    const Tensor whole(room.data(), mine.dtype(), {unit.plan().numel});
    axis.all_gather(run.runtime.stream, whole, mine).wait();
    const std::vector<float> flat = values_of(whole);
    for (const PlacedParam& param : unit.plan().params)
      all[param.spec.name] = {flat.begin() + param.range().begin, flat.begin() + param.range().end};
  }
  return all;
}
inline Values weights_of(SmallRun& run) { return gathered(run, &Unit::master); }

// The largest difference of a weight here from the whole ones, relative to the largest of its tensor.
inline double difference(SmallRun& run, const Values& whole) {
  double worst = 0;
  for (Unit& unit : run.units())
    for (const HeldShard& held : held_shards(unit, "", unit.master(), {0, unit.plan().numel})) {
      const std::vector<float>& values = whole.at(held.shard.name);
      double norm = 0;
      for (float v : values) norm = std::max(norm, std::abs(static_cast<double>(v)));
      const int64_t width = held.shard.columns.size();
      for (int64_t i = 0; i < held.data.numel(); i++) {
        const int64_t e = held.shard.elements.begin + i;
        const auto at = static_cast<size_t>(e / width * held.shard.cols() + held.shard.columns.begin + e % width);
        worst = std::max(worst, std::abs(static_cast<double>(held.data.data<float>()[i] - values[at])) / norm);
      }
    }
  return worst;
}

// Makes three steps, each of them with the loss and the norm of `expected`, the first one as it is rehearsed.
inline void follow(SmallRun& run, const Config& config, const std::vector<StepScalars>& expected) {
  run.runtime.stream.trace().keep(TraceLevel::everything);
  for (int64_t s = 0; s < 3; s++) {
    const StepScalars found = run.step(s), &want = expected[static_cast<size_t>(s)];
    EXPECT_NEAR(found.loss, want.loss, 1e-5 * want.loss) << "step " << s;
    EXPECT_NEAR(found.grad_norm, want.grad_norm, 1e-4 * want.grad_norm) << "step " << s;
    if (s > 0) continue;
    EXPECT_EQ(run.runtime.stream.trace().events(), rehearse(config, run.plan, TraceLevel::everything).trace)
        << "what is rehearsed is what is done, call by call";
    run.runtime.stream.trace().keep(TraceLevel::off);
  }
}

// The layout and the batch, for a failure's trace.
inline std::string described(const Config& c) {
  const ParallelConfig& p = c.parallel;
  return fmt::format(
      "tensor {}{}{}, pipeline {} x {} {} active {}, {} over {}{}, batch {} in {}{}", p.tensor_parallel_degree,
      p.sequence_parallel ? " with sequence" : "",
      p.tensor_pieces > 1 ? fmt::format(" in {} pieces", p.tensor_pieces) : "", p.pipeline_parallel_degree,
      p.virtual_stages, to_string(p.pipeline_schedule), p.active_microbatches, to_string(p.sharding_strategy),
      p.sharded_data_parallel_degree, p.hierarchical_allgather ? fmt::format(" on nodes of {}", p.ranks_per_node) : "",
      c.batch.global_batch_size, c.batch.microbatch_size,
      fmt::format(", {}{}, {} of the optimizer{} on the host, {}", to_string(c.memory.activation_checkpointing),
                  c.memory.offload_activations ? " offloaded" : "", c.memory.offload_optimizer,
                  c.memory.offload_parameters ? " and the weights" : "", to_string(c.precision.compute)) +
          (c.precision.stochastic_rounding ? " rounded at random" : ""));
}

}  // namespace megalith
