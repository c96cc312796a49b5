// An independent GPT-2 in PyTorch and float64 (../shared/reference) says what training must do, step by step. Here the
// program does it through the command line, in every layout, and the weights come back through its export.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "checkpoints/reader.h"
#include "tests/end_to_end/layout.h"
#include "tests/end_to_end/reference_tensors.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

// The largest relative error of a gradient against grads/<name> in reference.h5. Both are in Hugging Face's layout.
double check_gradients(const Weights& found, const std::string& folder) {
  double worst = 0;
  for (const auto& [name, weight] : found) {
    const double error = relative_error(weight.values, read_hdf5(folder + "/reference.h5", "grads/" + name));
    EXPECT_LT(error, 1e-4) << name;
    worst = std::max(worst, error);
  }
  return worst;
}

using Layouts = std::map<int, std::vector<std::string>>;  // by ranks, in the words of layout.h

void check(const std::string& folder, const Layouts& layouts) {
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", folder, folder);
  for (const auto& [ranks, words] : layouts) {
    std::vector<Training> trainings;
    for (const std::string& w : words) trainings.push_back({fmt::format("run{}_{}", ranks, trainings.size()), w, {}});
    train_several(scratch, ranks, trainings);
    expect_courses(scratch, trainings, reference_course(folder));
  }
}

TEST(Golden, tiny_in_every_layout) {
  SKIP_WITHOUT_REFERENCE();
  check(reference("tiny"),
        {{1, {"full_shard microbatch=1", "no_shard microbatch=8 recompute", "full_shard microbatch=4 recompute"}},
         {2,
          {"full_shard microbatch=1 recompute", "full_shard microbatch=4", "full_shard shard=1 microbatch=2",
           "no_shard microbatch=2 recompute"}},
         {3, {"full_shard microbatch=1", "full_shard microbatch=2 recompute", "no_shard microbatch=8"}},
         {4,
          {"full_shard microbatch=2", "full_shard shard=2 microbatch=1 recompute", "full_shard shard=2 microbatch=4",
           "no_shard microbatch=1 recompute"}}});
}

TEST(Golden, small_to_the_end_of_its_course) {
  SKIP_WITHOUT_REFERENCE();
  Layouts layouts{{1, {"full_shard microbatch=4"}}};
  if (taken("Golden.small_to_the_end_of_its_course")) layouts[3] = {"no_shard microbatch=4 recompute"};
  check(reference("small"), layouts);
}

// The beginning of the reference's course, which moves by 2 %, within 2^-10: bf16 has 8 bits, but its roundings are
// many, and even out.
TEST(Golden, small_in_sixteen_bits) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("small"), reference("small"));
  const std::vector<std::string> random = {"precision.compute=bf16", "precision.master=bf16", "precision.moments=bf16",
                                           "precision.stochastic_rounding=true", "train.steps=12"};
  Course expected = reference_course(reference("small"));
  expected.steps.resize(12);
  train_several(scratch, 1, {{"fp16", "", {"precision.compute=fp16", "train.steps=12"}}, {"random", "", random}});
  for (const char* name : {"fp16", "random"}) {
    const std::vector<Step> steps = read_steps(scratch / name);
    ASSERT_EQ(steps.size(), expected.steps.size());
    for (size_t s = 0; s < steps.size(); s++)
      EXPECT_NEAR(steps[s].loss, expected.steps[s].loss, 0x1p-10 * expected.steps[s].loss) << name << " step " << s;
  }
}

// This is what FEATURES.md says of sixteen bits. A bias is not held to it: that of the keys has no gradient but what
// rounding makes, which AdamW makes as large as any.
TEST(Golden, sixteen_bits_agree_on_several_ranks) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  struct Tolerance {
    double loss, norm, weights;
  };
  const auto many = static_cast<int>(taken("Golden.sixteen_bits_agree_on_several_ranks"));
  std::vector<Training> alone, together;
  const auto add = [&](const std::string& type, const Args& precision) {
    Args args{"train.steps=50", "optimizer.decay_steps=50"};
    args.insert(args.end(), precision.begin(), precision.end());
    alone.push_back({type, "", args});
    together.push_back({type + "_data", "full_shard microbatch=1", args});
    together.push_back({type + "_tensor", "tensor=2 sequence full_shard microbatch=2", args});
  };
  add("fp16", {"precision.compute=fp16"});
  add("bf16", {"precision.compute=bf16"});
  add("fp32_residual", {"precision.compute=bf16", "precision.residual=fp32"});
  train_several(scratch, 1, alone);
  train_several(scratch, many, together);
  for (const auto& [type, tolerance] : std::map<std::string, Tolerance>{
           {"fp16", {5e-4, 1e-2, 2e-2}}, {"bf16", {4e-3, 5e-2, 1e-1}}, {"fp32_residual", {4e-3, 5e-2, 1e-1}}}) {
    const Course expected = course_of(scratch / type);
    ASSERT_EQ(expected.steps.size(), 50u);
    for (const std::string kind : {"_data", "_tensor"}) {
      SCOPED_TRACE(type + kind);
      const Course found = course_of(scratch / (type + kind));
      ASSERT_EQ(found.steps.size(), 50u);
      Tolerance worst{0, 0, 0};
      for (size_t s = 0; s < 50; s++) {
        const Step &f = found.steps[s], &e = expected.steps[s];
        worst.loss = std::max(worst.loss, std::abs(f.loss - e.loss));
        worst.norm = std::max(worst.norm, std::abs(f.grad_norm - e.grad_norm) / e.grad_norm);
      }
      for (const auto& [name, e] : expected.weights)
        if (e.shape.size() == 2)
          worst.weights = std::max(worst.weights, relative_error(found.weights.at(name).values, e.values));
      EXPECT_LT(worst.loss, tolerance.loss);
      EXPECT_LT(worst.norm, tolerance.norm);
      EXPECT_LT(worst.weights, tolerance.weights);
      EXPECT_GT(worst.loss, 0) << "the layouts are one";
      fmt::print("  {}{}: losses within {:.1e}, norms {:.1e}, matrices {:.1e}\n", type, kind, worst.loss, worst.norm,
                 worst.weights);
    }
  }
}

// A step with a learning rate that moves nothing, no clipping and beta1 = 0: what the checkpoint then holds are the
// initial weights, exactly, and as first moments the gradient.
TEST(Golden, logits_gradients_and_an_exact_round_trip_of_the_weights) {
  SKIP_WITHOUT_REFERENCE();
  const std::string python = python_with("transformers, torch, h5py");
  for (const std::string name : {"tiny", "small"}) {
    SCOPED_TRACE(name);
    const std::string folder = reference(name);
    const Scratch scratch;
    write_reference_config(scratch / "config.toml", folder, folder);
    train(scratch.folder(), 2,
          {"train.steps=1", "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0",
           "optimizer.gradient_clip=0", "optimizer.beta1=0"});
    const std::string checkpoint = scratch / "run/checkpoints/" + step_name(1);
    const Weights initial = read_weights(folder + "/model.safetensors");
    const Weights found = exported_weights(scratch.folder(), scratch / "run");
    EXPECT_EQ(found.size(), initial.size());
    Weights gradients;
    CheckpointReader reader(checkpoint);
    for (const auto& [tensor, stored] : initial) {
      ASSERT_TRUE(found.contains(tensor)) << tensor;
      EXPECT_TRUE(found.at(tensor).values == stored.values) << tensor << " changed on its way through";
      const std::string moment = "moments/first/" + tensor;
      Weight gradient{reader.shape(moment), Values(stored.values.size())};
      reader.read(whole_tensor(moment, gradient.shape), gradient.values.data());
      // Our matrices of layers are (out, in), theirs [in, out].
      if (tensor.starts_with("h.") && gradient.shape.size() == 2) {
        const auto rows = static_cast<size_t>(gradient.shape[0]), cols = static_cast<size_t>(gradient.shape[1]);
        Values transposed(gradient.values.size());
        for (size_t r = 0; r < rows; r++)
          for (size_t c = 0; c < cols; c++) transposed[c * rows + r] = gradient.values[r * cols + c];
        gradient = {{gradient.shape[1], gradient.shape[0]}, transposed};
      }
      gradients[tensor] = gradient;
    }
    const double error = check_gradients(gradients, folder);

    // The reference's logits give the loss of its first microbatch, and `evaluate` the program's.
    const auto recipe = nlohmann::json::parse(read_file(folder + "/reference.json")).at("recipe");
    const size_t T = recipe.at("seq"), B = recipe.at("batch"), V = recipe.at("vocab");
    const Values logits = read_hdf5(folder + "/reference.h5", "logits");
    const std::string tokens = read_file(folder + "/tokens.bin");
    double loss = 0;
    for (size_t i = 0; i < B * T; i++) {
      uint16_t target = 0;
      std::memcpy(&target, tokens.data() + 2 * (i + 1), 2);
      double sum = 0;
      for (size_t v = 0; v < V; v++) sum += std::exp(static_cast<double>(logits[i * V + v]));
      loss += (std::log(sum) - static_cast<double>(logits[i * V + target])) / static_cast<double>(B * T);
    }
    for (const std::string& model : {checkpoint, scratch / "run/export", folder}) {
      const Result evaluated = run(megalith({"evaluate", "--checkpoint", model, "--data", folder + "/tokens.bin",
                                             "--sequence-length", std::to_string(T), "--sequences", std::to_string(B)}),
                                   scratch.folder());
      ASSERT_EQ(evaluated.status, 0) << evaluated.text();
      double printed = 0;
      ASSERT_EQ(std::sscanf(evaluated.out.c_str(), "loss %lf", &printed), 1) << evaluated.text();
      EXPECT_NEAR(printed, loss, 1e-6) << model;
    }
    fmt::print("  {}: gradients {:.1e}\n", name, error);

    if (python.empty()) {
      fmt::print("  logits not compared: MEGALITH_PYTHON names no Python with transformers, torch and h5py\n");
      continue;
    }
    const Result compared = run({python, MEGALITH_SOURCE_DIR "/tests/checkpoints/export_loads.py", "run/export",
                                 folder + "/tokens.bin", folder + "/reference.h5", "1e-4"},
                                scratch.folder());
    EXPECT_EQ(compared.status, 0) << compared.text();
    fmt::print("  {}", compared.out);
  }
}

struct OddShape {
  std::string name;
  Args options;
  Layouts layouts;
};

void PrintTo(const OddShape& shape, std::ostream* out) { *out << shape.name; }

class OddReference : public testing::TestWithParam<OddShape> {};

TEST_P(OddReference, holds) {
  SKIP_WITHOUT_REFERENCE();
  const std::string python = python_with("torch, numpy, h5py");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON names no Python with torch, numpy and h5py";
  const Scratch scratch;
  Args command{python, MEGALITH_SOURCE_DIR "/../shared/reference/make_reference.py", scratch / "reference"};
  command.insert(command.end(), GetParam().options.begin(), GetParam().options.end());
  const Result made = run(command, scratch.folder());
  ASSERT_EQ(made.status, 0) << made.text();
  check(scratch / "reference", GetParam().layouts);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, OddReference,
    testing::Values(
        // 3 heads of 16, sequences of 33, a batch of 15: nothing is a power of two, and the ranks do not divide it.
        OddShape{"three_heads",
                 {"--layers", "3",  "--hidden",  "48", "--heads",       "3", "--vocab", "131",
                  "--seq",    "33", "--context", "40", "--batch",       "5", "--accum", "3",
                  "--steps",  "9",  "--warmup",  "3",  "--decay-steps", "7", "--seed",  "5"},
                 {{1, {"full_shard microbatch=5"}},
                  {2, {"full_shard microbatch=3 recompute"}},
                  {3, {"no_shard microbatch=5"}},
                  {4, {"full_shard shard=2 microbatch=1", "full_shard microbatch=3"}}}},
        // One layer, heads of 7 and 1-token microbatches; every step is clipped, hard; no warm-up.
        OddShape{"heads_of_seven",
                 {"--layers", "1",    "--hidden",       "35",  "--heads", "5", "--vocab",  "77", "--seq",         "19",
                  "--batch",  "7",    "--accum",        "1",   "--steps", "8", "--warmup", "0",  "--decay-steps", "8",
                  "--clip",   "0.05", "--weight-decay", "0.3", "--seed",  "11"},
                 {{1, {"no_shard microbatch=7 recompute"}},
                  {2, {"full_shard microbatch=1"}},
                  {3, {"full_shard microbatch=7"}},
                  {4, {"no_shard microbatch=1 recompute"}}}},
        // A head as wide as the model, one wider than 64, and sequences of 2.
        OddShape{"one_head",
                 {"--layers", "2", "--hidden", "112", "--heads", "1", "--vocab", "300", "--seq",  "2",
                  "--batch",  "6", "--accum",  "2",   "--steps", "6", "--clip",  "0",   "--seed", "3"},
                 {{1, {"full_shard microbatch=4"}},
                  {3, {"full_shard shard=3 microbatch=2"}},
                  {4, {"full_shard microbatch=3 recompute"}}}}),
    [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace megalith::e2e
