// A step that goes wrong on one rank updates on none: the run is then the same, to the last bit, as one that has never
// made this step, in every kind of layout; and the ranks know between them what was wrong.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/long_tests.h"
#include "tests/mpi/late.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/job/agreement.h"

namespace megalith {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Config spoilt_model() { return deep_model(12); }

// Returns those that this number of ranks allows: each axis alone, all of them, and the strategies of sharding.
std::vector<Config> spoilt_layouts() {
  std::vector<Config> all;
  const auto add = [&](int tensor, int pipeline, ShardingStrategy strategy, int shards, auto change) {
    std::optional<Config> c = laid_out(spoilt_model(), tensor, pipeline, strategy, shards);
    if (!c) return;
    change(*c);
    all.push_back(*c);
  };
  const auto as_it_is = [](Config&) {};
  using enum ShardingStrategy;
  add(1, 1, full_shard, 0, as_it_is);
  add(1, 1, full_shard, 0, [](Config& c) { c.precision.compute = ComputeType::bf16; });
  add(1, 1, no_shard, 0, [](Config& c) {
    c.batch.global_batch_size = 16;
    c.batch.microbatch_size = 2;
  });
  add(1, 1, shard_grad_op, 2, as_it_is);
  add(1, 1, shard_grad_op, 2, [](Config& c) { c.precision.gradient_reduce = StorageType::bf16; });
  add(1, 1, full_shard, 0, [](Config& c) {
    c.precision.compute = ComputeType::bf16;
    c.memory.offload_optimizer = 1;
    c.memory.offload_parameters = true;
  });
  add(1, 1, full_shard, 0, [](Config& c) {
    c.precision.compute = ComputeType::bf16;
    c.memory.offload_optimizer = 0.5;
  });
  add(2, 1, full_shard, 0, as_it_is);
  add(2, 1, no_shard, 0, [](Config& c) { c.parallel.sequence_parallel = true; });
  add(6, 1, full_shard, 0, as_it_is);
  add(1, 2, full_shard, 0, [](Config& c) { c.parallel.virtual_stages = 2; });
  add(1, 4, shard_optimizer, 0, [](Config& c) { c.parallel.pipeline_schedule = PipelineSchedule::gpipe; });
  add(2, 2, shard_grad_op, 0, [](Config& c) { c.parallel.sequence_parallel = true; });
  for (const PipelineSchedule schedule : schedules_in_halves) {  // each V is in one of the two
    if (schedule != PipelineSchedule::v_half)
      add(1, 2, full_shard, 0, [=](Config& c) {
        c.parallel.pipeline_schedule = schedule;
        c.parallel.virtual_stages = 2;
      });
    if (schedule != PipelineSchedule::zb_v)
      add(2, 2, shard_optimizer, 0, [=](Config& c) {
        c.parallel.pipeline_schedule = schedule;
        c.parallel.virtual_stages = is_v_shaped(schedule) ? 2 : 1;
        c.parallel.sequence_parallel = true;
        c.parallel.tensor_pieces = 2;
      });
  }
  return all;
}

// Weights and moments of this rank, and the copy that computes.
std::vector<std::vector<char>> bits_of(SmallRun& run) {
  std::vector<std::vector<char>> all;
  const auto add = [&](Tensor t) {
    all.emplace_back(static_cast<char*>(t.raw()), static_cast<char*>(t.raw()) + t.bytes());
  };
  for (Unit& unit : run.units()) {
    add(unit.master());
    add(unit.working());
  }
  for (const Optimizer::StateTensors& state : run.trainer.optimizer().state())
    for (const Tensor& t : state.by_unit) add(t);
  return all;
}

void expect_equal(const StepScalars& a, const StepScalars& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(a.decision, b.decision);
  EXPECT_EQ(a.bad_microbatches, b.bad_microbatches);
  EXPECT_EQ(a.bad_units, b.bad_units);
}

void spoil(Tensor element) {
  if (element.dtype() == DType::bf16)
    *element.data<bfloat16>() = bfloat16(nan);
  else
    *element.data<float>() = nan;
}

// A fault: makes `run` spoil the step that comes, and says what is to be found out about it.
struct Fault {
  std::string name;
  std::function<void(SmallRun&)> plant;
  bool loss;              // is not finite
  std::string unit;       // the last whose gradient is not; empty: none
  int64_t sequence = -1;  // of the batch, whose loss is not; -1: none
};

// An element of what the step shows under that name in a row of the batch, on every rank that has it.
std::function<void(SmallRun&)> in_row(const std::string& what, int64_t row) {
  return [=](SmallRun& run) {
    run.trainer.stage().observe([=](const std::string& name, int64_t first_row, Tensor rows) {
      if (name == what && first_row <= row && row < first_row + rows.rows())
        spoil(rows.rows(row - first_row, row - first_row + 1).flat(0, 1));
    });
  };
}
// An element of the gradient of layer 5, when a microbatch has added to it, on the last rank of those that make it.
// Tensor-parallel ranks have it each for itself, and this one is not the one whose copy counts in the norm.
void in_gradient_of_one_rank(SmallRun& run) {
  const auto here = [&] {
    for (const UnitPlan& unit : run.plan.units)
      if (unit.name == "block 5") return true;
    return false;
  };
  const std::vector<bool> have = of_all_ranks(session(), here());
  int last = 0;
  for (int r = 0; r < session().size(); r++)
    if (have[static_cast<size_t>(r)]) last = r;
  if (last != session().rank()) return;
  run.trainer.stage().follow([&run, made = Instruction::none](const Instruction* i) mutable {
    if (made != Instruction::none) {
      constexpr Param bias{1};
      const auto unit = static_cast<size_t>(made);
      CHECK(run.plan.units[unit].params[1].spec.name == "h.5.ln_1.bias", "another parameter");
      spoil(run.trainer.stage().sharding().gradients(unit)[bias].flat(3, 4));
    }
    using enum Instruction::Op;
    const bool makes = i && i->layer == 5 && (i->op == backward || i->op == backward_weight);
    made = makes ? i->unit : Instruction::none;
  });
}

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"data", in_row("embedding", 5 * 12 + 7), true, "final norm", 5},
      {"last layer", in_row("h.7", 9 * 12), true, "final norm", 9},
      {"gradient of a layer", in_row("d h.3", 4 * 12 + 6), false, "block 3"},
      {"loss alone", in_row("loss", 2 * 12 + 3), true, "", 2},
      {"gradient of one rank", in_gradient_of_one_rank, false, "block 5"},
  };
  return all;
}

std::string name_of_unit(const Config& config, size_t unit) { return model_spec(config.model).at(unit).name; }

void expect_found_out(SmallRun& run, const StepScalars& step, const Fault& fault) {
  EXPECT_EQ(step.decision, Decision::not_finite);
  EXPECT_EQ(std::isfinite(step.loss), !fault.loss);
  EXPECT_EQ(std::isfinite(step.grad_norm), fault.unit.empty());
  ASSERT_EQ(step.bad_unit.has_value(), !fault.unit.empty());
  if (step.bad_unit) {
    EXPECT_EQ(name_of_unit(run.config, *step.bad_unit), fault.unit);
  }

  // The ranks that have the head of this sequence, and no others, know that its microbatch is to blame.
  std::vector<int64_t> blamed;
  if (run.plan.chunks.back().last)
    for (int64_t k = 0; k < run.plan.batch.num_microbatches(); k++) {
      const Interval sequences = run.plan.batch.sequences(k);
      if (sequences.begin <= fault.sequence && fault.sequence < sequences.end) blamed.push_back(k);
    }
  EXPECT_EQ(step.bad_microbatches, blamed);
  // Somebody has the gradient that is to blame, and it is the same unit.
  std::set<size_t> units;
  for (const std::vector<size_t>& theirs : of_all_ranks(session(), step.bad_units))
    units.insert(theirs.begin(), theirs.end());
  EXPECT_EQ(units.empty(), fault.unit.empty());
  if (!units.empty()) {
    EXPECT_EQ(name_of_unit(run.config, *units.rbegin()), fault.unit);
  }
}

// The first layout goes through all faults, and each of the others through those that are taken.
bool goes_through(size_t layout, size_t fault) {
  const auto some = static_cast<size_t>(taken("BadSteps.UpdateOnNoRankAndLeaveNoTrace"));
  return layout == 0 || (layout + fault) % faults().size() < some;
}

TEST(BadSteps, UpdateOnNoRankAndLeaveNoTrace) {
  const std::vector<Config> layouts = spoilt_layouts();
  for (size_t l = 0; l < layouts.size(); l++) {
    const Config& layout = layouts[l];
    SmallRun never = on_all_ranks(layout);
    never.step(0);
    const auto before = bits_of(never);
    const StepScalars expected[] = {never.step(2), never.step(3)};
    for (size_t f = 0; f < faults().size(); f++) {
      if (!goes_through(l, f)) continue;
      const Fault& fault = faults()[f];
      SCOPED_TRACE(described(layout) + ": " + fault.name);
      SmallRun run = on_all_ranks(layout);
      run.step(0);
      fault.plant(run);
      const StepScalars bad = run.step(1);
      run.trainer.stage().observe({});
      run.trainer.stage().follow({});
      expect_found_out(run, bad, fault);
      EXPECT_TRUE(bits_of(run) == before) << "something was updated";
      for (int64_t s : {2, 3}) expect_equal(run.step(s), expected[s - 2]);
      EXPECT_TRUE(bits_of(run) == bits_of(never)) << "the bad step has left something behind";
      const Optimizer::UpdateCounts a = run.trainer.optimizer().update_counts(run.runtime.stream),
                                    b = never.trainer.optimizer().update_counts(never.runtime.stream);
      EXPECT_EQ(a.updates, 3);
      EXPECT_EQ(a.skipped, 0);
      EXPECT_EQ(a.norms, b.norms);
      EXPECT_EQ(a.norms.size(), 3u);
    }
  }
}

// A loss scale that is too large falls on all ranks at once, without an update, until gradients are finite. The run is
// then the same, to the last bit, as one that has that scale from the start.
TEST(BadSteps, AnOverflowLowersTheLossScaleOfAllRanks) {
  for (Config layout : spoilt_layouts()) {
    if (layout.precision.compute == ComputeType::bf16) continue;
    layout.precision.compute = ComputeType::fp16;
    layout.precision.initial_loss_scale = 0x1p26;
    layout.precision.delayed_shift = 1;
    SCOPED_TRACE(described(layout));
    SmallRun run = on_all_ranks(layout);
    const auto before = bits_of(run);
    int64_t s = 0;
    double scale = 0x1p26;
    StepScalars step;
    for (step = run.step(s); step.decision == Decision::overflow; step = run.step(++s)) {
      EXPECT_TRUE(std::isfinite(step.loss));
      EXPECT_EQ(step.loss_scale, scale);
      EXPECT_EQ(step.next_loss_scale, scale / 2);
      EXPECT_TRUE(bits_of(run) == before) << "something was updated";
      scale /= 2;
    }
    EXPECT_EQ(step.decision, Decision::update);
    EXPECT_GT(s, 3) << "more than train.max_bad_steps in a row";
    EXPECT_LT(s, 25);
    layout.precision.initial_loss_scale = scale;
    SmallRun never = on_all_ranks(layout);
    expect_equal(never.step(s), step);
    do {  // it may be small enough for this batch only
      step = run.step(++s);
      const StepScalars other = never.step(s);
      EXPECT_EQ(other.decision, step.decision);
      EXPECT_EQ(other.loss_scale, step.loss_scale);
    } while (step.decision == Decision::overflow);
    EXPECT_TRUE(bits_of(run) == bits_of(never)) << "an overflow has left something behind";
    EXPECT_EQ(run.trainer.optimizer().update_counts(run.runtime.stream).updates, 2);
  }
}

// Spoils what the second of the ranks with the same gradient has of the sum, once it is there.
class SpoiltCopy : public LateCommunicator {
 public:
  explicit SpoiltCopy(Communicator* inner) : LateCommunicator(std::unique_ptr<Communicator>(inner)), inner_(inner) {}

 protected:
  std::unique_ptr<Communicator> do_split(std::string name, int channel, int color, int key) override {
    return std::make_unique<SpoiltCopy>(inner_->split(std::move(name), channel, color, key).release());
  }
  Pending do_all_reduce(Stream& s, Tensor data, Reduce op) override {
    auto sum = std::make_shared<Pending>(LateCommunicator::do_all_reduce(s, data, op));
    return Pending([this, sum, data] {
      sum->wait();
      if (channel() == static_cast<int>(Channel::data) && rank() == 1) spoil(data.flat(0, 1));
    });
  }

 private:
  Communicator* inner_;
};

// One that does not count in the norm is looked at all the same.
TEST(BadSteps, ASpoiltCopyOfAGoodGradientUpdatesNobody) {
  if (session().size() == 1) GTEST_SKIP() << "one rank has no copies";
  Config config = spoilt_model();
  config.parallel.sharding_strategy = ShardingStrategy::no_shard;
  SpoiltCopy world(host_world(session()).release());
  SmallRun run(config, Mesh(mesh_shape(config, session().size()), world));
  const auto before = bits_of(run);
  const StepScalars bad = run.step(0);
  EXPECT_EQ(bad.decision, Decision::not_finite);
  EXPECT_TRUE(std::isfinite(bad.loss));
  EXPECT_EQ(bad.bad_units.empty(), session().rank() != 1);
  EXPECT_TRUE(bits_of(run) == before) << "something was updated";
}

}  // namespace
}  // namespace megalith
