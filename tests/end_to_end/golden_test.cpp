// An independent GPT-2 in PyTorch and float64 (../shared/reference) says what training must do, step by step. Here the
// program does it through the command line, in every layout, and the weights come back through its export.
#include <fmt/format.h>
#include <hdf5.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoints/reader.h"
#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

struct Layout {
  int ranks;
  std::string strategy;
  int degree;  // ranks that share one copy; 0: all
  int microbatch;
  std::string recompute;
};

std::string describe(const Layout& l) {
  return fmt::format("{} ranks, {} {}, microbatches of {}, recompute {}", l.ranks, l.strategy, l.degree, l.microbatch,
                     l.recompute);
}

using Values = std::vector<float>;

Values read_hdf5(const std::string& path, const std::string& name) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  const hid_t space = H5Dget_space(dataset);
  Values values(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0) << name;
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  return values;
}

struct Stored {
  std::vector<int64_t> shape;
  Values values;
};

// The plainest reader of model.safetensors, so that no code of ours stands between the export and the reference.
std::map<std::string, Stored> read_safetensors(const std::string& path) {
  const std::string bytes = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const auto json = nlohmann::json::parse(bytes.substr(8, header));
  std::map<std::string, Stored> all;
  for (const auto& [key, entry] : json.items()) {
    if (key == "__metadata__") continue;
    EXPECT_EQ(entry.at("dtype"), "F32") << key;
    const size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    Stored stored{entry.at("shape").get<std::vector<int64_t>>(), Values((end - begin) / 4)};
    std::memcpy(stored.values.data(), bytes.data() + 8 + header + begin, end - begin);
    const std::string prefix = "transformer.";
    all[key.starts_with(prefix) ? key.substr(prefix.size()) : key] = std::move(stored);
  }
  return all;
}

double relative_error(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < found.size(); i++) {
    difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

struct Errors {
  double loss = 0, grad_norm = 0, learning_rate = 0;
  std::string text() const {
    return fmt::format("loss {:.1e}, gradient norm {:.1e}, learning rate {:.1e}", loss, grad_norm, learning_rate);
  }
};

Errors check_steps(const std::string& run, const std::string& folder) {
  const auto expected = nlohmann::json::parse(read_file(folder + "/reference.json")).at("steps");
  const std::vector<Step> found = read_steps(run);
  Errors worst;
  EXPECT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < std::min(found.size(), expected.size()); i++) {
    const double loss = expected[i].at("loss"), norm = expected[i].at("grad_norm"), rate = expected[i].at("lr");
    EXPECT_EQ(found[i].step, static_cast<int64_t>(i) + 1);
    worst.loss = std::max(worst.loss, std::abs(found[i].loss - loss));
    worst.grad_norm = std::max(worst.grad_norm, std::abs(found[i].grad_norm - norm) / norm);
    worst.learning_rate = std::max(worst.learning_rate, std::abs(found[i].learning_rate - rate));
  }
  EXPECT_LT(worst.loss, 1e-5);
  EXPECT_LT(worst.grad_norm, 1e-4);
  EXPECT_LT(worst.learning_rate, 1e-9);
  return worst;
}

// The largest relative error of a tensor against PATH/<name> in reference.h5. Both are in Hugging Face's layout.
double check_tensors(const std::map<std::string, Stored>& found, const std::string& folder, const std::string& path,
                     double tolerance) {
  double worst = 0;
  for (const auto& [name, stored] : read_safetensors(folder + "/model.safetensors")) {
    if (!found.contains(name)) {
      ADD_FAILURE() << "no " << name;
      continue;
    }
    EXPECT_EQ(found.at(name).shape, stored.shape) << name;
    const double error = relative_error(found.at(name).values, read_hdf5(folder + "/reference.h5", path + "/" + name));
    EXPECT_LT(error, tolerance) << path << "/" << name;
    worst = std::max(worst, error);
  }
  return worst;
}

void check(const std::string& folder, const std::vector<Layout>& layouts) {
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(describe(layout));
    const Scratch scratch;
    write_reference_config(scratch / "config.toml", folder, folder);
    train(scratch.folder(), layout.ranks,
          {"parallel.sharding_strategy=" + layout.strategy,
           fmt::format("parallel.sharded_data_parallel_degree={}", layout.degree),
           fmt::format("batch.microbatch_size={}", layout.microbatch),
           "memory.activation_checkpointing=" + layout.recompute});
    const Errors errors = check_steps(scratch / "run", folder);
    const std::string last = step_name(static_cast<int64_t>(read_steps(scratch / "run").size()));
    const Result exported =
        run(megalith({"checkpoint", "export", "run/checkpoints/" + last, "--out", "export"}), scratch.folder());
    ASSERT_EQ(exported.status, 0) << exported.text();
    const double weights = check_tensors(read_safetensors(scratch / "export/model.safetensors"), folder, "final", 1e-3);
    fmt::print("  {:<62}  {}, weights {:.1e}\n", describe(layout), errors.text(), weights);
  }
}

TEST(Golden, tiny_in_every_layout) {
  SKIP_WITHOUT_REFERENCE();
  check(reference("tiny"), {{1, "full_shard", 0, 1, "none"},
                            {1, "no_shard", 0, 8, "each"},
                            {1, "full_shard", 0, 4, "each"},
                            {2, "full_shard", 0, 1, "each"},
                            {2, "full_shard", 0, 4, "none"},
                            {2, "full_shard", 1, 2, "none"},
                            {2, "no_shard", 0, 2, "each"},
                            {3, "full_shard", 0, 1, "none"},
                            {3, "full_shard", 0, 2, "each"},
                            {3, "no_shard", 0, 8, "none"},
                            {4, "full_shard", 0, 2, "none"},
                            {4, "full_shard", 2, 1, "each"},
                            {4, "full_shard", 2, 4, "none"},
                            {4, "no_shard", 0, 1, "each"}});
}

TEST(Golden, small_in_every_layout) {
  SKIP_WITHOUT_REFERENCE();
  check(reference("small"), {{1, "full_shard", 0, 4, "none"},
                             {2, "full_shard", 0, 8, "each"},
                             {2, "no_shard", 0, 1, "none"},
                             {3, "full_shard", 0, 2, "none"},
                             {3, "no_shard", 0, 4, "each"},
                             {4, "full_shard", 0, 4, "none"},
                             {4, "full_shard", 2, 1, "each"}});
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
    const Result exported = run(megalith({"checkpoint", "export", checkpoint, "--out", "export"}), scratch.folder());
    ASSERT_EQ(exported.status, 0) << exported.text();

    const auto initial = read_safetensors(folder + "/model.safetensors");
    const auto found = read_safetensors(scratch / "export/model.safetensors");
    EXPECT_EQ(found.size(), initial.size());
    std::map<std::string, Stored> gradients;
    CheckpointReader reader(checkpoint);
    for (const auto& [tensor, stored] : initial) {
      ASSERT_TRUE(found.contains(tensor)) << tensor;
      EXPECT_TRUE(found.at(tensor).values == stored.values) << tensor << " changed on its way through";
      const std::string moment = "moments/first/" + tensor;
      Stored gradient{reader.shape(moment), Values(stored.values.size())};
      reader.read(whole_piece(moment, gradient.shape), gradient.values.data());
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
    const double error = check_tensors(gradients, folder, "grads", 1e-4);

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
    for (const std::string& model : {checkpoint, scratch / "export", folder}) {
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
    const Result compared = run({python, MEGALITH_SOURCE_DIR "/tests/checkpoints/export_loads.py", "export",
                                 folder + "/tokens.bin", folder + "/reference.h5", "1e-4"},
                                scratch.folder());
    EXPECT_EQ(compared.status, 0) << compared.text();
    fmt::print("  {}", compared.out);
  }
}

struct OddShape {
  std::string name;
  Args options;
  std::vector<Layout> layouts;
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
                 {{1, "full_shard", 0, 5, "none"},
                  {2, "full_shard", 0, 3, "each"},
                  {3, "no_shard", 0, 5, "none"},
                  {4, "full_shard", 2, 1, "none"},
                  {4, "full_shard", 0, 3, "none"}}},
        // One layer, heads of 7 and 1-token microbatches; every step is clipped, hard; no warm-up.
        OddShape{"heads_of_seven",
                 {"--layers", "1",    "--hidden",       "35",  "--heads", "5", "--vocab",  "77", "--seq",         "19",
                  "--batch",  "7",    "--accum",        "1",   "--steps", "8", "--warmup", "0",  "--decay-steps", "8",
                  "--clip",   "0.05", "--weight-decay", "0.3", "--seed",  "11"},
                 {{1, "no_shard", 0, 7, "each"},
                  {2, "full_shard", 0, 1, "none"},
                  {3, "full_shard", 0, 7, "none"},
                  {4, "no_shard", 0, 1, "each"}}},
        // A head as wide as the model, one wider than 64, and sequences of 2.
        OddShape{"one_head",
                 {"--layers", "2", "--hidden", "112", "--heads", "1", "--vocab", "300", "--seq",  "2",
                  "--batch",  "6", "--accum",  "2",   "--steps", "6", "--clip",  "0",   "--seed", "3"},
                 {{1, "full_shard", 0, 4, "none"}, {3, "full_shard", 3, 2, "none"}, {4, "full_shard", 0, 3, "each"}}}),
    [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace megalith::e2e
