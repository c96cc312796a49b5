// Products in 8 bits (precision.products) on every number of ranks: as rehearsed to the byte, the same bits twice and
// with recomputation, offload, halves and pieces, and one scale for all parts of a tensor.
#include <cmath>
#include <limits>

#include "kernels/linear/fp8.h"
#include "kernels/linear/gemm_cpu.h"
#include "tests/mpi/all_layouts.h"

namespace megalith {
namespace {

constexpr int64_t layers = 4;

Config fp8_model() {
  Config config = small_config();
  config.model = {.layers = layers, .hidden = 64, .heads = 4, .vocab = 61, .context = 32};
  config.model.norm = NormKind::rms;
  config.model.positions = Positions::rotary;
  config.model.activation = Activation::swiglu;
  config.model.key_value_heads = 2;
  config.model.head_size = 32;
  config.model.feed_forward = 128;
  config.batch = {.sequence_length = 32, .global_batch_size = 8, .microbatch_size = 2};
  config.precision.compute = ComputeType::bf16;
  config.precision.products = ProductType::fp8;
  config.parallel.prescaled_batch = true;
  return resolve(config);
}

struct Layout {
  std::string name;
  Config config;
};

// Layouts of this number of ranks, apart from what recomputes, moves or cuts.
std::vector<Layout> layouts_of_fp8() {
  std::vector<Layout> all;
  const int ranks = session().size();
  const auto add = [&](const std::string& name, int divisor, auto&& change) {
    if (ranks % divisor != 0) return;
    all.push_back({name, fp8_model()});
    change(all.back().config);
    all.back().config = resolve(all.back().config);
  };
  add("data", 1, [](Config&) {});
  add("GPT-2", 1, [](Config& c) {
    c.model.norm = NormKind::layer;
    c.model.activation = Activation::gelu;
    c.model.positions = Positions::learned;
    c.model.dropout = 0.1;
  });
  add("an adapter", 1, [](Config& c) { c.adapter.rank = 2; });
  add("an adapter of weights on the host", 1, [](Config& c) {
    c.adapter.rank = 2;
    c.memory.offload_optimizer = 1;
    c.memory.offload_parameters = true;
  });
  add("frozen parts", 1, [](Config& c) { c.train.freeze = "attention\nln_f\n"; });
  add("tensor", 2, [](Config& c) { c.parallel.tensor_parallel_degree = 2; });
  add("sequence", 2, [](Config& c) {
    c.parallel.tensor_parallel_degree = 2;
    c.parallel.sequence_parallel = true;
  });
  add("shared heads", 4, [](Config& c) { c.parallel.tensor_parallel_degree = 4; });
  add("pipeline", 2, [](Config& c) { c.parallel.pipeline_parallel_degree = 2; });
  add("pipeline of tensor groups", 4, [](Config& c) {
    c.parallel.pipeline_parallel_degree = 2;
    c.parallel.tensor_parallel_degree = 2;
  });
  return all;
}

// Returns whether it is a layout of fp8_model(), which trains all of it.
bool trains_fp8_model(const Config& layout) {
  return layout.adapter.rank == 0 && layout.train.freeze.empty() && layout.model.norm == NormKind::rms;
}

TEST(Fp8, IsTheSameBitsTwiceAndAsRehearsed) {
  for (const auto& [name, layout] : layouts_of_fp8()) {
    SCOPED_TRACE(name);
    SmallRun run = on_all_ranks(layout), again = on_all_ranks(layout);
    run.runtime.stream.trace().keep(TraceLevel::everything);
    for (int64_t s : {0, 1}) {
      const StepScalars expected = run.step(s), found = again.step(s);
      if (s == 0) {
        EXPECT_EQ(run.runtime.stream.trace().events(), rehearse(layout, run.plan, TraceLevel::everything).trace);
      }
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.grad_norm, expected.grad_norm);
    }
    EXPECT_EQ(weights_of(again), weights_of(run));
    run.evaluate(3);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
  }
}

TEST(Fp8, RecomputationOffloadHalvesAndPiecesKeepTheBits) {
  using Kind = ActivationCheckpointing::Kind;
  for (const auto& [name, layout] : layouts_of_fp8()) {
    SmallRun plain = on_all_ranks(layout);
    for (int64_t s : {0, 1}) plain.step(s);
    const Values expected = weights_of(plain);
    const auto same = [&, &name = name, &layout = layout](const std::string& what, auto&& change) {
      SCOPED_TRACE(fmt::format("{}, {}", name, what));
      Config changed = layout;
      change(changed);
      SmallRun run = on_all_ranks(resolve(changed));
      for (int64_t s : {0, 1}) run.step(s);
      EXPECT_EQ(weights_of(run), expected);
    };
    same("recomputed", [](Config& c) { c.memory.activation_checkpointing.kind = Kind::each; });
    same("products kept", [](Config& c) { c.memory.activation_checkpointing.kind = Kind::selective; });
    same("offloaded", [](Config& c) {
      c.memory.activation_checkpointing.kind = Kind::each;
      c.memory.offload_activations = true;
      c.memory.offload_optimizer = 1;
    });
    if (layout.parallel.pipeline_parallel_degree > 1)
      same("in halves", [](Config& c) { c.parallel.pipeline_schedule = PipelineSchedule::zb_h1; });
    if (layout.parallel.tensor_parallel_degree > 1 && cpu::rows_keep_their_bits())
      same("in pieces", [](Config& c) { c.parallel.tensor_pieces = 2; });
  }
}

// Its sizes divided by 6 are multiples of 16, and so is its length, which 3 and 6 divide. The first layer is in bf16.
Config wide_model() {
  Config config = deep_model(6);
  config.model.hidden = 96;
  config.model.context = config.batch.sequence_length = 48;
  config.precision.compute = ComputeType::bf16;
  config.precision.products = ProductType::fp8;
  config.precision.first_layers_in_bf16 = 1;
  return config;
}

// Of the table of layouts. Only tensor parallelism rounds otherwise. A cast turns a difference of bf16's unit into one
// of e4m3's, which is 16 times as large, and AdamW's first update, which takes little but signs, makes it larger: the
// norms of the second gradients differ by up to a tenth here.
TEST(Fp8, EveryLayoutFollowsOneRankAlone) {
  SmallRun alone(wide_model());
  const std::vector<StepScalars> expected = alone.steps(2);
  for (const Config& layout : all_layouts(wide_model(), session().size())) {
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    const std::vector<StepScalars> steps = run.steps(2);
    EXPECT_NEAR(steps[0].loss, expected[0].loss, 1.0 / 1024 * expected[0].loss);
    EXPECT_NEAR(steps[0].grad_norm, expected[0].grad_norm, 1.0 / 64 * expected[0].grad_norm);
    EXPECT_NEAR(steps[1].loss, expected[1].loss, 1.0 / 256 * expected[1].loss);
    run.evaluate(7);
    EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory) << "planned to the byte";
    for (const Channel channel : all_channels)
      EXPECT_EQ(run.runtime.mesh.channel(channel).copied(), 0) << name_of(channel);
  }
}

TEST(Fp8, EveryKindOfMemoryKeepsTheBits) {
  const std::vector<MemoryConfig> kinds = kinds_of_memory();
  size_t turn = 0;
  for (Config layout : all_layouts(wide_model(), session().size())) {
    layout.memory = {};
    SmallRun kept = on_all_ranks(layout);
    layout.memory = kinds[1 + turn++ % (kinds.size() - 1)];
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    for (int64_t s : {0, 1}) {
      const StepScalars step = kept.step(s), same = run.step(s);
      EXPECT_EQ(same.loss, step.loss) << "step " << s;
      EXPECT_EQ(same.grad_norm, step.grad_norm) << "step " << s;
    }
    EXPECT_EQ(run.evaluate(7), kept.evaluate(7));
    EXPECT_EQ(weights_of(run), weights_of(kept));
  }
}

// The scales of a step's casts, in their order.
class Scales : public OpWatcher {
 public:
  void launched(const char* name, std::span<const Tensor> written) override {
    if (std::string(name) == CastToFp8::name) all.push_back(*written[2].data<float>());
  }
  std::vector<float> all;
};

// First of all weights, then of the inputs of the first forward pass. The weights are the same in every layout, and so
// must be their scales; inputs differ by the rounding of sums over parts.
TEST(Fp8, AllPartsOfATensorHaveOneScale) {
  const auto scales_of = [](SmallRun& run) {
    Scales scales;
    run.runtime.stream.watch_ops(&scales);
    run.step(0);
    run.runtime.stream.watch_ops(nullptr);
    return scales.all;
  };
  // Of forward and backward: each is the scale of a whole tensor, which all ranks of a tensor group share.
  const auto expect_same_in_group = [](SmallRun& run, std::vector<float>& mine) {
    Communicator& group = run.runtime.mesh.channel(Channel::tensor);
    std::vector<float> all(mine.size() * static_cast<size_t>(group.size()));
    const auto tensor_of = [](std::vector<float>& v) { return Tensor(v.data(), DType::f32, {std::ssize(v)}); };
    group.all_gather(run.runtime.stream, tensor_of(all), tensor_of(mine)).wait();
    for (size_t i = 0; i < all.size(); i++) ASSERT_EQ(all[i], mine[i % mine.size()]) << "cast " << i % mine.size();
  };
  SmallRun alone(fp8_model());
  const std::vector<float> whole = scales_of(alone);
  constexpr size_t weights = 4 * layers, of_first_forward = 8 * layers;
  for (const auto& [name, layout] : layouts_of_fp8()) {
    if (!trains_fp8_model(layout) || layout.parallel.pipeline_parallel_degree > 1) continue;
    SCOPED_TRACE(name);
    SmallRun run = on_all_ranks(layout);
    std::vector<float> parts = scales_of(run);
    expect_same_in_group(run, parts);
    const bool same_sequences = run.plan.batch.rank == 0;
    for (size_t i = 0; i < of_first_forward; i++) {
      const bool weight = i < weights;
      if (!weight && !same_sequences) continue;
      EXPECT_NEAR(parts[i], whole[i], weight ? 0 : 0.03 * double{whole[i]}) << "cast " << i;
    }
  }
}

// Two sequences in a microbatch of two, and with two masked ones in a microbatch of four.
TEST(Fp8, MaskedSequencesDoNotChangeAScale) {
  if (session().size() > 1) GTEST_SKIP() << "runs on one rank";
  const auto scales_of = [](int64_t microbatch) {
    Config config = fp8_model();
    config.batch.global_batch_size = 2;
    config.batch.microbatch_size = microbatch;
    SmallRun run(config);
    Scales scales;
    run.runtime.stream.watch_ops(&scales);
    run.step(0);
    run.runtime.stream.watch_ops(nullptr);
    return scales.all;
  };
  const std::vector<float> full = scales_of(2), masked = scales_of(4);
  ASSERT_EQ(masked.size(), full.size());
  for (size_t i = 0; i < full.size(); i++) EXPECT_NEAR(masked[i], full[i], 0.02 * double{full[i]}) << "cast " << i;
}

// A weight that is not finite makes the step one that is skipped, as in bf16, though e4m3 has no infinity; a matrix of
// zeros has a scale.
TEST(Fp8, WhatIsNotFiniteIsFoundAndZerosAreMultiplied) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [name, layout] : layouts_of_fp8())
    for (const float planted : {infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f}) {
      SCOPED_TRACE(fmt::format("{} {}", name, planted));
      SmallRun run = on_all_ranks(layout);
      for (Unit& unit : run.units())
        for (const PlacedParam& param : unit.plan().params) {
          if (param.spec.name != "h.1.mlp.c_fc.weight") continue;
          for (const LocalShard& held : unit.shards_of(param, {0, unit.plan().numel}))
            for (int64_t i = held.local; i < held.local + (planted == 0 ? held.shard.numel() : 1); i++)
              unit.working().data<bfloat16>()[i] = bfloat16(planted);
        }
      const StepScalars found = run.step(0);
      EXPECT_EQ(std::isfinite(found.loss), planted == 0);
      EXPECT_EQ(std::isfinite(found.grad_norm), planted == 0);
    }
}

// It is near bf16, and not bf16. As in the table of layouts above, two steps: differences grow with each update.
TEST(Fp8, LayoutsAgreeWithinItsRounding) {
  const auto course = [](Config config, ProductType products) {
    config.precision.products = products;
    SmallRun run = on_all_ranks(config);
    std::vector<double> losses;
    for (int64_t s = 0; s < 2; s++) losses.push_back(run.step(s).loss);
    return losses;
  };
  const Config data = fp8_model();
  const std::vector<double> expected = course(data, ProductType::fp8), in_bf16 = course(data, ProductType::compute);
  for (size_t s = 0; s < expected.size(); s++) {
    EXPECT_NEAR(expected[s], in_bf16[s], 0.02 * in_bf16[s]);
    EXPECT_NE(expected[s], in_bf16[s]) << "products are not in 8 bits";
  }
  for (const auto& [name, layout] : layouts_of_fp8()) {
    if (!trains_fp8_model(layout)) continue;
    SCOPED_TRACE(name);
    const std::vector<double> found = course(layout, ProductType::fp8);
    for (size_t s = 0; s < found.size(); s++)
      EXPECT_NEAR(found[s], expected[s], 1.0 / 256 * expected[s]) << "step " << s;
  }
}

}  // namespace
}  // namespace megalith
