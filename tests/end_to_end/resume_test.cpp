// A run that is stopped and started again is the run that was never stopped, to the last bit.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "tests/end_to_end/layout.h"

namespace megalith::e2e {
namespace {

constexpr int64_t whole_run = 11;

// Eight sequences an update from 64 samples: an epoch is eight updates, and the ninth draws a new order. Four
// microbatches an update on one rank.
void prepare_shuffled(const Scratch& scratch) {
  std::string config = read_file(write_reference_config(scratch / "config.toml", reference("tiny"), ""));
  config.replace(config.find("shuffle = false"), 15, "shuffle = true");
  config.replace(config.find("microbatch_size = 4"), 19, "microbatch_size = 2");
  config.replace(config.find("[data]"), 6, "dropout = 0.1\n[data]");
  config.replace(config.find("steps = 8\n[checkpoint]"), 22, "steps = 11\n[checkpoint]");
  write_file(scratch / "config.toml", config);
}

Args with(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void expect_equal_runs(const std::string& a, const std::string& b) {
  const std::vector<Step> x = read_steps(a), y = read_steps(b);
  ASSERT_EQ(x.size(), static_cast<size_t>(whole_run));
  ASSERT_EQ(y.size(), static_cast<size_t>(whole_run));
  for (size_t i = 0; i < x.size(); i++) {
    EXPECT_EQ(x[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_TRUE(x[i] == y[i]) << fmt::format("step {}: loss {} and {}, norm {} and {}, rate {} and {}", i + 1,
                                             x[i].loss, y[i].loss, x[i].grad_norm, y[i].grad_norm, x[i].learning_rate,
                                             y[i].learning_rate);
  }
  expect_same_rank_files(a + "/checkpoints/" + step_name(whole_run), b + "/checkpoints/" + step_name(whole_run));
}

TEST(Resume, after_any_step_the_rest_is_the_same) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_shuffled(scratch);
  train(scratch.folder(), 1, {"run.output=whole"});
  std::vector<Training> stopped, rest;
  for (int64_t k = 1; k < whole_run; k++) {
    stopped.push_back({fmt::format("stopped{}", k), "", {fmt::format("train.steps={}", k)}});
    rest.push_back({fmt::format("stopped{}", k), "", {}});
  }
  train_several(scratch, 1, stopped);
  const Result resumed = train_several(scratch, 1, rest);
  for (int64_t k = 1; k < whole_run; k++) {
    SCOPED_TRACE(fmt::format("stopped after step {}", k));
    EXPECT_EQ(count(resumed.out, fmt::format("resumed after step {}\n", k)), 1u) << resumed.text();
    expect_equal_runs(scratch / "whole", scratch / fmt::format("stopped{}", k));
  }
}

struct Variant {
  std::string name;
  int ranks;
  Args overrides;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class ResumeVariant : public testing::TestWithParam<Variant> {};

// One run folder, stopped after every single step, and all that in one process: what a start reads is the checkpoint.
TEST_P(ResumeVariant, stopped_after_every_step) {
  SKIP_WITHOUT_REFERENCE();
  const auto& [name, ranks, overrides] = GetParam();
  const Scratch scratch;
  prepare_shuffled(scratch);
  std::vector<Training> trainings{{"whole", "", overrides}};
  for (int64_t k = 1; k <= whole_run; k++)
    trainings.push_back({"pieces", "", with({fmt::format("train.steps={}", k)}, overrides)});
  train_several(scratch, ranks, trainings);
  expect_equal_runs(scratch / "whole", scratch / "pieces");
}

INSTANTIATE_TEST_SUITE_P(
    Resume, ResumeVariant,
    testing::Values(
        Variant{"two_ranks_bf16", 2, {"precision.compute=bf16"}},
        Variant{"two_ranks_recompute", 2, {"memory.activation_checkpointing=each", "batch.microbatch_size=1"}},
        Variant{"two_ranks_with_all_on_the_host",
                2,
                {"precision.compute=bf16", "precision.residual=fp32", "memory.activation_checkpointing=each",
                 "memory.offload_activations=true", "memory.offload_optimizer=1", "memory.offload_parameters=true"}},
        // Three ranks do not divide the batch; the order of the file, no dropout.
        Variant{"three_ranks_no_shard",
                3,
                {"parallel.sharding_strategy=no_shard", "data.shuffle=false", "model.dropout=0"}},
        Variant{"four_ranks_hybrid", 4, {"parallel.sharded_data_parallel_degree=2"}}),
    [](const auto& suite) { return suite.param.name; });

// The data goes on where it stopped and the masks are drawn for the same tokens: only the order of sums differs.
TEST(Resume, with_another_number_of_ranks) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_shuffled(scratch);
  train(scratch.folder(), 1, {"run.output=whole"});
  const std::vector<Step> whole = read_steps(scratch / "whole");
  struct Change {
    int before, after;
    Args overrides;
  };
  for (const Change& change : {Change{1, 2, {}}, Change{1, 3, {}}, Change{3, 1, {}}, Change{4, 2, {}},
                               Change{2, 4, {"parallel.sharded_data_parallel_degree=2", "batch.microbatch_size=1"}},
                               Change{4, 3, {"parallel.sharding_strategy=no_shard"}}}) {
    SCOPED_TRACE(fmt::format("from {} to {} ranks", change.before, change.after));
    const std::string name = fmt::format("from{}to{}", change.before, change.after);
    train(scratch.folder(), change.before, {"run.output=" + name, "train.steps=5"});
    train(scratch.folder(), change.after, with({"run.output=" + name}, change.overrides));
    const std::vector<Step> found = read_steps(scratch / name);
    ASSERT_EQ(found.size(), whole.size());
    double worst = 0;
    for (size_t i = 0; i < whole.size(); i++) {
      EXPECT_EQ(found[i].step, whole[i].step);
      EXPECT_EQ(found[i].learning_rate, whole[i].learning_rate);
      worst = std::max(worst, std::abs(found[i].loss - whole[i].loss));
      EXPECT_NEAR(found[i].grad_norm, whole[i].grad_norm, 1e-4 * whole[i].grad_norm);
    }
    EXPECT_LT(worst, 1e-5);
    fmt::print("  from {} to {} ranks: largest difference of a loss {:.1e}\n", change.before, change.after, worst);
  }
}

// Data goes on after the sequences that were trained on, which are those of the old batch: with a learning rate that
// moves nothing, a loss tells which sequences it is of.
TEST(Resume, with_another_batch_goes_on_after_the_same_sequences) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_shuffled(scratch);
  const Args still{"optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0", "model.dropout=0"};
  const auto batch = [&](int64_t sequences, int64_t until) {
    return with(still, {fmt::format("batch.global_batch_size={}", sequences), fmt::format("train.steps={}", until)});
  };
  train_several(scratch, 1, {{"small", "", batch(4, 16)}, {"changed", "", batch(8, 4)}});
  train_several(scratch, 1, {{"changed", "", with({"checkpoint.allow_changes=true"}, batch(4, 8))}});
  const std::vector<Step> small = read_steps(scratch / "small"), changed = read_steps(scratch / "changed");
  ASSERT_EQ(small.size(), 16u);
  ASSERT_EQ(changed.size(), 8u);
  for (size_t i = 4; i < 8; i++) {  // after 4 batches of 8: the 9th of 4, and on
    EXPECT_EQ(changed[i].loss, small[i + 4].loss) << "step " << i + 1;
    EXPECT_NE(changed[i].loss, small[i].loss) << "step " << i + 1;
  }
}

// Nothing is left to do, and nothing is done: not even another evaluation.
TEST(Resume, a_finished_run_is_left_as_it_is) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_shuffled(scratch);
  const Args overrides{"data.validation=" + reference("tiny") + "/tokens.bin", "data.allow_overlap=true",
                       "train.evaluate_every=4", "checkpoint.every=3"};
  train(scratch.folder(), 2, overrides);
  auto before = snapshot(scratch / "run");
  train(scratch.folder(), 2, overrides);
  auto after = snapshot(scratch / "run");
  before.erase("log.txt");
  after.erase("log.txt");
  EXPECT_EQ(before["metrics.jsonl"], after["metrics.jsonl"]);
  EXPECT_TRUE(before == after);
}

// Evaluations stand in metrics.jsonl once each, whether or not the run was stopped between them.
TEST(Resume, evaluations_are_the_same_as_well) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  prepare_shuffled(scratch);
  const Args overrides{"data.validation=" + reference("tiny") + "/tokens.bin", "data.allow_overlap=true",
                       "train.evaluate_every=2"};
  train(scratch.folder(), 2, with({"run.output=whole"}, overrides));
  for (const char* k : {"2", "6", "11"})
    train(scratch.folder(), 2, with({"run.output=pieces", fmt::format("train.steps={}", k)}, overrides));
  const auto losses = [](const std::string& folder) {
    std::map<int64_t, std::vector<double>> found;
    for (const auto& line : read_metrics(folder))
      if (line.contains("validation_loss")) found[line.at("step")].push_back(line.at("validation_loss"));
    return found;
  };
  const auto whole = losses(scratch / "whole");
  EXPECT_EQ(whole.size(), 6u);  // after 2, 4, 6, 8, 10 and at the end
  for (const auto& [step, values] : whole) EXPECT_EQ(values.size(), 1u) << "step " << step;
  EXPECT_EQ(whole, losses(scratch / "pieces"));
}

}  // namespace
}  // namespace megalith::e2e
