// Muon against an independent reference in float64 (../shared/reference/muon): the course of a training, and what
// Newton-Schulz makes of the first step's matrices, in every kind of layout; and that checkpoints keep its momentum.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "checkpoints/reader.h"
#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/layout.h"
#include "tests/end_to_end/muon_reference.h"
#include "tests/end_to_end/reference_tensors.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

struct MuonLayout {
  int ranks;
  std::string words;
};

class Muon : public testing::TestWithParam<std::string> {
 protected:
  const MuonReference reference_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(References, Muon, testing::Values("gpt2", "llama3"));

const std::vector<MuonLayout> muon_layouts{
    {1, "microbatch=2"},
    {2, "full_shard microbatch=1"},
    {4, "tensor=2 sequence full_shard microbatch=1"},
    {4, "tensor=2 pipeline=2 recompute offload_optimizer=1"},
    // The others wait for the night.
    {1, "offload_optimizer=1 recompute"},
    {2, "tensor=2"},
    {2, "tensor=2 sequence recompute=selective"},
    {2, "pipeline=2 microbatch=1"},
    {2, "no_shard microbatch=1"},
    {3, "full_shard microbatch=1"},
    {4, "shard_optimizer shard=2 recompute microbatch=1"},
    {4, "shard_grad_op microbatch=1 offload_optimizer=0.5"},
    {4, "full_shard shard=2 microbatch=1 nodes=2"},
    {4, "full_shard microbatch=1 nodes=2 two_level offload_optimizer=1 offload_parameters recompute"},
    {8, "tensor=2 pipeline=2 shard_grad_op microbatch=1"},
    {8, "tensor=2 sequence full_shard shard=2 recompute=selective microbatch=1"},
    {8, "full_shard shard=4 recompute offload_optimizer=1 offload_parameters microbatch=1"},
    {8, "tensor=2 full_shard microbatch=1 offload_optimizer=1"},
};

TEST_P(Muon, TakesTheCourseOfTheReferenceInEveryLayout) {
  SKIP_WITHOUT_MUON(reference_);
  const Scratch scratch;
  reference_.write_config(scratch);
  const std::vector<Step> expected = reference_.steps();
  const auto count = static_cast<size_t>(taken("Muon.layouts"));
  for (size_t l = 0; l < std::min(count, muon_layouts.size()); l++) {
    SCOPED_TRACE(fmt::format("{} ranks: {}", muon_layouts[l].ranks, muon_layouts[l].words));
    const std::string name = fmt::format("run{}", l);
    Args args = overrides_of(muon_layouts[l].words);
    args.push_back("run.output=" + name);
    train(scratch.folder(), muon_layouts[l].ranks, args);
    const std::string errors = expect_same_course({read_steps(scratch / name), {}}, {expected, {}});
    const double end = reference_.furthest(MuonReference::weights_of(scratch, name), "final");
    EXPECT_LT(end, 1e-3);
    fmt::print("  {} on {}: {}: {}; weights {:.1e}\n", GetParam(), muon_layouts[l].ranks, muon_layouts[l].words, errors,
               end);
  }
}

// One step with a rate of 1 and no decay moves each matrix by 0.2 sqrt(max(rows, columns)) of its direction.
TEST_P(Muon, OrthogonalisesWholeMatricesInEveryLayout) {
  SKIP_WITHOUT_MUON(reference_);
  const Scratch scratch;
  reference_.write_config(scratch);
  const Args one{"train.steps=1", "optimizer.warmup_steps=0", "optimizer.weight_decay=0"};
  const auto with = [&](const std::string& rate, const std::string& words, const std::string& name) {
    Args args = overrides_of(words);
    args.insert(args.end(), one.begin(), one.end());
    args.insert(args.end(), {"optimizer.muon_learning_rate=" + rate, "run.output=" + name,
                             "optimizer.min_learning_rate=0", "optimizer.muon_min_learning_rate=0"});
    return args;
  };
  train(scratch.folder(), 1, with("1e-300", "microbatch=2", "still"));
  const Weights before = MuonReference::weights_of(scratch, "still");
  const auto count = static_cast<size_t>(taken("Muon.layouts"));
  for (size_t l = 0; l < std::min(count, muon_layouts.size()); l++) {
    SCOPED_TRACE(fmt::format("{} ranks: {}", muon_layouts[l].ranks, muon_layouts[l].words));
    const std::string name = fmt::format("run{}", l);
    train(scratch.folder(), muon_layouts[l].ranks, with("1", muon_layouts[l].words, name));
    double worst = 0;
    size_t matrices = 0;
    for (const auto& [tensor, after] : MuonReference::weights_of(scratch, name)) {
      const bool of_layer = tensor.starts_with("h.") || tensor.find(".layers.") != std::string::npos;
      if (!of_layer || after.shape.size() != 2) continue;
      const auto rows = static_cast<size_t>(after.shape[0]), columns = static_cast<size_t>(after.shape[1]);
      const size_t parts = tensor.ends_with("c_attn.weight") ? 3 : 1, width = columns / parts;
      const double size = 0.2 * std::sqrt(static_cast<double>(std::max(rows, width)));
      for (size_t part = 0; part < parts; part++, matrices++) {
        Values direction;
        for (size_t r = 0; r < rows; r++)
          for (size_t c = part * width; c < (part + 1) * width; c++) {
            const auto at = [&](const Weight& w) { return static_cast<double>(w.values[r * columns + c]); };
            direction.push_back(static_cast<float>((at(before.at(tensor)) - at(after)) / size));
          }
        const std::string piece = parts == 1 ? tensor : tensor + "." + "qkv"[part];
        const double error =
            relative_error(direction, read_hdf5(reference_.folder() + "/reference.h5", "orthogonal/" + piece));
        EXPECT_LT(error, 1e-3) << piece;
        worst = std::max(worst, error);
      }
    }
    EXPECT_EQ(matrices, GetParam() == "gpt2" ? 12u : 14u);
    fmt::print("  {} on {}: {}: directions {:.1e}\n", GetParam(), muon_layouts[l].ranks, muon_layouts[l].words, worst);
  }
}

// A run that was stopped goes on with the bits of one that was not, and in another layout within the reference's.
TEST_P(Muon, GoesOnFromItsCheckpoints) {
  SKIP_WITHOUT_MUON(reference_);
  const Scratch scratch;
  reference_.write_config(scratch);
  const Args sharded = overrides_of("full_shard microbatch=1");
  const auto of = [](Args args, const Args& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const std::string steps = fmt::format("train.steps={}", reference_.steps().size());
  train(scratch.folder(), 2, of(sharded, {"run.output=whole"}));
  train(scratch.folder(), 2, of(sharded, {"run.output=pieces", "train.steps=3"}));
  std::filesystem::copy(scratch / "pieces", scratch / "other", std::filesystem::copy_options::recursive);
  train(scratch.folder(), 2, of(sharded, {"run.output=pieces", steps}));
  EXPECT_EQ(read_steps(scratch / "pieces"), read_steps(scratch / "whole"));
  const Weights whole = MuonReference::weights_of(scratch, "whole"),
                pieces = MuonReference::weights_of(scratch, "pieces");
  for (const auto& [name, weight] : whole) EXPECT_EQ(weight.values, pieces.at(name).values) << name;

  train(scratch.folder(), 4,
        of(overrides_of("tensor=2 pipeline=2 offload_optimizer=1 microbatch=1"), {"run.output=other", steps}));
  expect_same_course({read_steps(scratch / "other"), {}}, {reference_.steps(), {}});
  EXPECT_LT(reference_.furthest(MuonReference::weights_of(scratch, "other"), "final"), 1e-3);

  // One momentum for each matrix, and two moments for everything else.
  CheckpointReader reader(scratch / "whole/checkpoints/" + step_name(std::ssize(reference_.steps())));
  size_t momenta = 0, moments = 0, parameters = 0;
  for (const std::string& name : reader.names()) {
    momenta += name.starts_with("momentum/");
    moments += name.starts_with("moments/");
    parameters += name.starts_with("parameters/");
  }
  EXPECT_EQ(momenta, 8u) << "four matrices in each of two layers, q, k and v among one another";
  EXPECT_EQ(moments, 2 * (parameters - momenta));
}

// The other algorithm takes over what it can use of the state, with leave, and says so.
TEST_P(Muon, TakesOverFromAdamWAndBack) {
  SKIP_WITHOUT_MUON(reference_);
  const Scratch scratch;
  reference_.write_config(scratch);
  const Args adamw{"optimizer.algorithm=adamw", "optimizer.muon_learning_rate=0", "optimizer.muon_min_learning_rate=0"};
  const auto of = [](Args args, const Args& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  train(scratch.folder(), 2, of(adamw, {"train.steps=3"}));
  const Result refused = run(mpirun(1, {"train", "config.toml"}), scratch.folder());
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.text().find("optimizer.algorithm: no effect there, \"muon\" here"), std::string::npos)
      << refused.text();
  const std::string allow = "checkpoint.allow_changes=true";
  train(scratch.folder(), 4, of(overrides_of("tensor=2 full_shard microbatch=1"), {allow, "train.steps=5"}));
  EXPECT_NE(
      read_file(scratch / "run/log.txt").find("momentum of the layers' matrices begins with AdamW's first moments"),
      std::string::npos);
  train(scratch.folder(), 1, of(adamw, {allow, "train.steps=7"}));
  EXPECT_NE(read_file(scratch / "run/log.txt").find("AdamW's moments begin at 0"), std::string::npos);
  const std::vector<Step> steps = read_steps(scratch / "run");
  ASSERT_EQ(steps.size(), 7u);
  for (const Step& step : steps) EXPECT_NEAR(step.loss, steps.front().loss, 0.1) << "no step is too large";
}

}  // namespace
}  // namespace megalith::e2e
