// `transformers` on what we export of other families than GPT-2: it finds every tensor, bit for bit, and has our loss,
// the reference's logits and greedy texts; and we read back what it saves.
#include <fmt/format.h>

#include <cstring>

#include "checkpoints/safetensors_folder.h"
#include "tests/end_to_end/families.h"
#include "tests/end_to_end/reference_tensors.h"

namespace megalith::e2e {
namespace {

class FamiliesInTransformers : public testing::TestWithParam<std::string> {
 protected:
  // As `evaluate` prints it, on the first microbatch.
  std::string loss_of(const Scratch& scratch, const std::string& weights) const {
    const nlohmann::json recipe = family_.recipe();
    const Result result =
        succeed(megalith({"evaluate", "--checkpoint", weights, "--data", family_.folder() + "/tokens.bin",
                          "--sequence-length", recipe.at("seq").dump(), "--sequences", recipe.at("batch").dump()}),
                scratch);
    double loss = 0;
    EXPECT_EQ(std::sscanf(result.out.c_str(), "loss %lf", &loss), 1) << result.text();
    return fmt::format("{}", loss);
  }

  const Family family_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Of, FamiliesInTransformers, testing::ValuesIn(all_families),
                         [](const auto& suite) { return suite.param; });

void expect_same_tensors(const std::string& a, const std::string& b) {
  const SafeTensorsFolder one(a), other(b);
  EXPECT_EQ(one.files().size(), other.files().size());
  for (const auto& [name, file] : one.files()) {
    ASSERT_TRUE(other.files().contains(name)) << name;
    EXPECT_EQ(one.entry(name).shape, other.entry(name).shape) << name;
    const auto numel = static_cast<size_t>(one.entry(name).numel);
    Values x(numel), y(numel);
    one.read(name, 0, 1, static_cast<int64_t>(numel), x.data());
    other.read(name, 0, 1, static_cast<int64_t>(numel), y.data());
    EXPECT_EQ(std::memcmp(x.data(), y.data(), numel * sizeof(float)), 0) << name;
  }
}

TEST_P(FamiliesInTransformers, HaveOurLossAndTheReferencesLogitsAndTextsAndAreSavedAsTheyCame) {
  SKIP_WITHOUT_FAMILY(family_);
  const std::string python = python_with("transformers, torch, h5py");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with transformers, torch and h5py";
  const Scratch scratch;
  family_.write_config(scratch, family_.folder());
  train(scratch.folder(), 2,
        {"train.steps=1", "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0", "run.output=still"});
  train(scratch.folder(), 2, {"parallel.tensor_parallel_degree=2", "run.output=trained"});
  Args command{"env",      "HF_HUB_OFFLINE=1", python, MEGALITH_SOURCE_DIR "/tests/end_to_end/transformers_agrees.py",
               "--family", family_.folder()};
  std::map<std::string, std::string> losses;
  for (const std::string name : {"still", "trained"})
    for (const std::string form : {"fp32", "bf16"}) {
      const std::string out = name + "_" + form;
      succeed(megalith({"checkpoint", "export", name, "--out", out, "--type", form, "--max-shard-size", "50KB"}),
              scratch);
      losses[out] = loss_of(scratch, out);
      // The bf16 of a model that is stored in fp32 or in fp16 is another than its own.
      const bool begins = name == "still" && (form == "fp32" || family_.recipe().at("dtype") == "bfloat16");
      command.insert(command.end(), {out, losses[out], out + "_again", begins ? "begins" : "later"});
    }
  fmt::print("{}:\n{}", family_.name, succeed(command, scratch).out);
  for (const auto& [out, loss] : losses) {
    expect_same_tensors(scratch / out, scratch / (out + "_again"));
    EXPECT_EQ(loss_of(scratch, out + "_again"), loss);
  }
}

}  // namespace
}  // namespace megalith::e2e
