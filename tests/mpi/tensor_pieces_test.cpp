// Transfers of the tensor-parallel group beside products that are cut into pieces (parallel.tensor_pieces): the bits of
// products that are not cut, in every kind of layout, and as rehearsed, to the byte. Where the library's products
// depend on the number of rows, the course is the same within rounding.
#include "kernels/linear/gemm_cpu.h"
#include "tests/mpi/late.h"
#include "tests/mpi/on_all_ranks.h"

namespace megalith {
namespace {

// 48 rows a microbatch, so that three pieces are possible; Llama's kind of block, or GPT-2's.
Config cut_model(bool llama) {
  Config config = small_config();
  config.model = {.layers = 4, .hidden = 48, .heads = 12, .vocab = 61, .context = 24, .dropout = llama ? 0.0 : 0.1};
  if (llama) {
    config.model.norm = NormKind::rms;
    config.model.positions = Positions::rotary;
    config.model.activation = Activation::swiglu;
    config.model.key_value_heads = 2;
    config.model.query_key_norm = true;
    config.model.bias = false;
  }
  config.batch = {.sequence_length = 24, .global_batch_size = 8, .microbatch_size = 2};
  return config;
}

struct Named {
  std::string name;
  Config config;
};

std::vector<Named> layouts_with_sums() {
  std::vector<Named> all;
  const int ranks = session().size();
  using Kind = ActivationCheckpointing::Kind;
  for (int tensor : {2, 4})
    for (bool sequence : {false, true})
      for (bool llama : {false, true}) {
        if (ranks % tensor != 0) continue;
        const auto add = [&](const char* name, auto&& change) {
          Config c = cut_model(llama);
          c.parallel.tensor_parallel_degree = tensor;
          c.parallel.sequence_parallel = sequence;
          change(c);
          all.push_back({fmt::format("{} {}", name, llama ? "llama" : "gpt2"), resolve(c)});
        };
        add("plain", [](Config&) {});
        add("recomputed", [](Config& c) { c.memory.activation_checkpointing.kind = Kind::each; });
        add("bf16", [](Config& c) { c.precision.compute = ComputeType::bf16; });
        if (llama && !sequence)
          add("parallel residual", [](Config& c) {
            c.model.parallel_residual = true;
            c.precision.compute = ComputeType::bf16;
            c.precision.residual = ResidualType::fp32;
          });
        if (!llama)
          add("adapter", [](Config& c) {
            c.adapter.rank = 2;
            c.adapter.dropout = 0.1;
          });
        if (ranks % (2 * tensor) != 0) continue;
        add("pipeline", [](Config& c) {
          c.parallel.pipeline_parallel_degree = 2;
          c.parallel.virtual_stages = 2;
          c.memory.activation_checkpointing.kind = Kind::selective;
        });
        const auto in_halves = [](Config& c) {
          c.parallel.pipeline_parallel_degree = 2;
          c.parallel.pipeline_schedule = PipelineSchedule::zb_h1;
        };
        add("halves", in_halves);
        add("halves in bf16 beside fp32", [&](Config& c) {
          in_halves(c);
          c.precision.compute = ComputeType::bf16;
          c.precision.residual = ResidualType::fp32;
        });
        if (!llama)
          add("halves with adapters", [&](Config& c) {
            in_halves(c);
            c.adapter.rank = 2;
            c.adapter.dropout = 0.1;
          });
        if (llama && !sequence)
          add("halves of parallel residuals", [&](Config& c) {
            in_halves(c);
            c.model.parallel_residual = true;
          });
        add("sharded", [](Config& c) { c.parallel.sharding_strategy = ShardingStrategy::shard_grad_op; });
      }
  return all;
}

// Returns how many transfers of the group have work between their beginning and their end.
int64_t overlapped(const std::vector<TraceEvent>& trace) {
  std::map<int32_t, bool> under_way;
  int64_t count = 0;
  for (const TraceEvent& e : trace) {
    if (e.kind == TraceEvent::Kind::begin && e.channel == static_cast<int8_t>(Channel::tensor)) under_way[e.id] = false;
    if (e.kind == TraceEvent::Kind::op)
      for (auto& [id, worked] : under_way) worked = true;
    if (const auto found = under_way.find(e.id); e.kind == TraceEvent::Kind::wait && found != under_way.end()) {
      count += found->second;
      under_way.erase(found);
    }
  }
  return count;
}

TEST(TensorPieces, GiveTheBitsOfWholeProducts) {
  for (const auto& [name, whole] : layouts_with_sums()) {
    SmallRun expected = on_all_ranks(whole);
    std::vector<StepScalars> course = expected.steps(2);
    const Values weights = weights_of(expected);
    const bool narrow = whole.precision.compute == ComputeType::bf16;
    const double rounding = cpu::rows_keep_their_bits() ? 0 : narrow ? 2e-3 : 1e-5;
    int64_t before = 0;
    for (int64_t pieces : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} pieces, {}", name, pieces, described(whole)));
      Config cut = whole;
      cut.parallel.tensor_pieces = pieces;
      SmallRun run = on_all_ranks(cut);
      run.runtime.stream.trace().keep(TraceLevel::everything);
      for (int64_t s : {0, 1}) {
        const StepScalars found = run.step(s);
        const StepScalars& want = course[static_cast<size_t>(s)];
        EXPECT_NEAR(found.loss, want.loss, rounding * want.loss);
        EXPECT_NEAR(found.grad_norm, want.grad_norm, 10 * rounding * want.grad_norm);
        if (s > 0) continue;
        EXPECT_EQ(run.runtime.stream.trace().events(), rehearse(cut, run.plan, TraceLevel::everything).trace);
        const int64_t beside = overlapped(run.runtime.stream.trace().events());
        // Rows are cut between ranks where each has its own, and a third of them is too little for a piece. Where
        // gradients of weights come later, nothing is beside whole products but what is gathered for these.
        const bool sequence = cut.parallel.sequence_parallel;
        const bool more = (pieces < 3 || !sequence) &&
                          (pieces > 1 || sequence || cut.parallel.pipeline_schedule == PipelineSchedule::one_f_one_b);
        EXPECT_GE(beside, before + (more ? 1 : 0)) << "more pieces, more transfers beside work";
        before = beside;
      }
      if (rounding == 0) {
        EXPECT_EQ(weights_of(run), weights);
      }
      run.evaluate(3);
      EXPECT_EQ(run.runtime.memory.peaks(), run.rehearsal.memory);
    }
  }
}

// No piece is read before it is there, nor written while it is under way.
TEST(TensorPieces, TouchNothingThatIsUnderWay) {
  for (const auto& [name, whole] : layouts_with_sums()) {
    SCOPED_TRACE(fmt::format("{}, {}", name, described(whole)));
    Config cut = whole;
    cut.parallel.tensor_pieces = 2;
    SmallRun expected = on_all_ranks(cut);
    LateCommunicator world(host_world(session()));
    SmallRun run(cut, Mesh(mesh_shape(cut, session().size()), world));
    const std::vector<StepScalars> course = expected.steps(2), steps = run.steps(2);
    for (size_t s = 0; s < steps.size(); s++) {
      EXPECT_EQ(steps[s].loss, course[s].loss);
      EXPECT_EQ(steps[s].grad_norm, course[s].grad_norm);
    }
  }
}

}  // namespace
}  // namespace megalith
