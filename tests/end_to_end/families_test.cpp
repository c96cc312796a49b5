// Models of other families than GPT-2, against independent references in float64 (../shared/reference/families): what
// training must do, step by step, on one rank and in layouts; and that the weights are read as they are stored.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoints/hugging_face.h"
#include "checkpoints/safetensors_folder.h"
#include "tests/end_to_end/families.h"
#include "tests/end_to_end/layout.h"
#include "tests/end_to_end/reference_tensors.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

using FamilyLayouts = std::vector<std::pair<int, std::string>>;  // ranks, and the words of layout.h

// Those that a normal run takes come first. On four tensor ranks each key-value head of Llama 3 and both Qwens is on
// two, and Mistral's on all.
const FamilyLayouts usual{{4, "tensor=4 sequence recompute=selective"},
                          {2, "pipeline=2 microbatch=1"},
                          {4, "tensor=2 full_shard microbatch=1"},
                          {1, "recompute=selective microbatch=3"},
                          {1, "microbatch=2"},
                          {1, "recompute microbatch=6"},
                          {1, "recompute offload microbatch=1"},
                          {2, "full_shard microbatch=1"},
                          {2, "tensor=2"},
                          {2, "tensor=2 sequence recompute=selective"},
                          {2, "no_shard offload_optimizer=0.5 microbatch=1"},
                          {3, "shard_grad_op microbatch=1"},
                          {4, "tensor=4"},
                          {4, "tensor=4 recompute offload offload_optimizer=1"},
                          {4, "shard_optimizer shard=2 recompute microbatch=1"},
                          {4, "tensor=2 sequence pipeline=2 recompute"},
                          {4, "tensor=2 unscaled no_shard microbatch=1"},
                          {6, "tensor=2 full_shard recompute=contiguous offload microbatch=1"},
                          {8, "tensor=2 pipeline=2 shard_grad_op microbatch=1"},
                          {8, "tensor=4 full_shard order=shard,tensor,data,pipeline microbatch=1"},
                          {8, "tensor=4 sequence pipeline=2 gpipe recompute microbatch=1"},
                          {8, "tensor=4 sequence shard_optimizer replicate=5000 recompute=selective microbatch=1"},
                          {8, "tensor=2 sequence full_shard shard=2 recompute=selective microbatch=1"},
                          {8,
                           "full_shard shard=4 nodes=2 two_level recompute offload_optimizer=1 offload_parameters "
                           "microbatch=1"}};

// Those that the model's sizes allow of. The references have two or three layers, and others that are made like them
// (MEGALITH_REFERENCE) more.
FamilyLayouts layouts_of(const Family& family) {
  const nlohmann::json recipe = family.recipe();
  const int64_t heads = recipe.at("heads"), features = recipe.at("ffn"), layers = recipe.at("layers");
  FamilyLayouts layouts = usual;
  if (heads % 4 != 0 || features % 4 != 0)
    std::erase_if(layouts, [](const auto& l) { return l.second.find("tensor=4") != l.second.npos; });
  const auto add = [&](const FamilyLayouts& more) { layouts.insert(layouts.end(), more.begin(), more.end()); };
  if (layers == 3)
    add({{3, "pipeline=3 microbatch=1"},
         {6, "pipeline=3 shard_optimizer microbatch=1"},
         {6, "tensor=2 pipeline=3 layers=1,1,1 recompute"}});
  if (layers >= 4)
    add({{2, "pipeline=2 virtual=2 microbatch=1"},
         {4, "pipeline=2 virtual=2 gpipe full_shard recompute=selective microbatch=1"},
         {4, "tensor=2 sequence pipeline=2 virtual=2 active=2 recompute microbatch=1"},
         {8, "tensor=2 pipeline=4 microbatch=1"}});
  return layouts;
}

class Families : public testing::TestWithParam<std::string> {
 protected:
  const Family family_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Of, Families, testing::ValuesIn(all_families), [](const auto& suite) { return suite.param; });

TEST_P(Families, TakeTheCourseOfTheReferenceInEveryLayout) {
  SKIP_WITHOUT_FAMILY(family_);
  const Scratch scratch;
  family_.write_config(scratch, family_.folder());
  const std::vector<Step> expected = family_.steps();
  FamilyLayouts layouts = layouts_of(family_);
  EXPECT_GE(layouts.size(), 12u);
  layouts.resize(std::min(layouts.size(), static_cast<size_t>(taken("Families.layouts"))));
  std::map<int, std::vector<Training>> by_ranks;
  for (const auto& [ranks, words] : layouts)
    by_ranks[ranks].push_back({fmt::format("run{}_{}", ranks, by_ranks[ranks].size()), words, {}});
  for (const auto& [ranks, trainings] : by_ranks) {
    train_several(scratch, ranks, trainings);
    for (const Training& t : trainings) {
      SCOPED_TRACE(fmt::format("{} ranks: {}", ranks, t.words));
      const std::string errors = expect_same_course({read_steps(scratch / t.name), {}}, {expected, {}});
      const double weights = family_.furthest(scratch / (t.name + "/checkpoints/" + step_name(std::ssize(expected))),
                                              "parameters/", "final");
      EXPECT_LT(weights, 1e-3);
      fmt::print("  {} on {}: {}: {}; weights {:.1e}\n", family_.name, ranks, t.words, errors, weights);
    }
  }
}

// Checkpoints keep every choice of the model, and go on in any layout: with more tensor ranks than key-value heads, and
// with fewer.
TEST_P(Families, GoOnInAnotherLayout) {
  SKIP_WITHOUT_FAMILY(family_);
  const Scratch scratch;
  family_.write_config(scratch, family_.folder());
  const bool four = family_.name != "llama2";
  const FamilyLayouts turns{{four ? 4 : 2, four ? "tensor=4" : "tensor=2"},
                            {2, "tensor=2 sequence"},
                            {four ? 8 : 4, four ? "tensor=4 sequence pipeline=2 recompute" : "tensor=2 pipeline=2"},
                            {1, "microbatch=3"}};
  Args shape;
  for (const std::string& key : shape_keys())
    shape.push_back(fmt::format("model.{}={}", key, shape_value(read_hugging_face_shape(family_.folder()), key)));
  for (size_t turn = 0; turn < turns.size(); turn++) {
    Args args = overrides_of(turns[turn].second);
    args.push_back(fmt::format("train.steps={}", 2 * turn + 2));
    if (turn > 0) {
      family_.write_config(scratch, "");  // the checkpoint alone says what the model is
      args.insert(args.end(), shape.begin(), shape.end());
    }
    train(scratch.folder(), turns[turn].first, args);
  }
  const std::vector<Step> steps = family_.steps();
  ASSERT_EQ(steps.size(), 2 * turns.size());
  expect_same_course({read_steps(scratch / "run"), {}}, {steps, {}});
  EXPECT_LT(family_.furthest(scratch / ("run/checkpoints/" + step_name(std::ssize(steps))), "parameters/", "final"),
            1e-3);
  Args other{"train", "config.toml"};
  other.insert(other.end(), shape.begin(), shape.end());
  other.push_back(family_.name == "neox" ? "model.parallel_residual=false" : "model.norm=layer");
  other.push_back("train.steps=9");
  const Result refused = run(megalith(other), scratch.folder());
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.text().find("is of another model: model."), std::string::npos) << refused.text();
}

// A step that moves nothing, without clipping and with beta1 = 0: the first moments are the gradient, and the weights
// those that were read. The older form of config.json is of the same model.
TEST_P(Families, GradientsAndWeightsAreTheReferencesFromBothFormsOfConfig) {
  SKIP_WITHOUT_FAMILY(family_);
  const Scratch scratch;
  std::filesystem::copy(family_.folder(), scratch / "older", std::filesystem::copy_options::recursive);
  std::filesystem::permissions(scratch / "older", std::filesystem::perms::owner_all);
  std::filesystem::remove(scratch / "older/config.json");
  std::filesystem::copy_file(family_.folder() + "/config.v4.json", scratch / "older/config.json");
  const std::string four = family_.name == "llama2" ? "tensor=2 sequence full_shard microbatch=1" : "tensor=4 sequence";
  std::vector<std::vector<Step>> steps;
  for (const auto& [weights, ranks, words] :
       {std::tuple(family_.folder(), 1, std::string()), {scratch / "older", 1, ""}, {family_.folder(), 4, four}}) {
    family_.write_config(scratch, weights);
    const std::string name = fmt::format("run{}", steps.size());
    Args args = overrides_of(words);
    for (const char* more : {"train.steps=1", "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0",
                             "optimizer.gradient_clip=0", "optimizer.beta1=0"})
      args.push_back(more);
    args.push_back("run.output=" + name);
    train(scratch.folder(), ranks, args);
    steps.push_back(read_steps(scratch / name));
    const std::string checkpoint = scratch / (name + "/checkpoints/" + step_name(1));
    const double error = family_.furthest(checkpoint, "moments/first/", "grads");
    EXPECT_LT(error, 2e-5);
    fmt::print("  {} on {}: gradients {:.1e}\n", family_.name, ranks, error);
  }
  EXPECT_EQ(steps[0], steps[1]);
}

// Steps that move nothing, and an export: the tensors of the folder that was read, bit for bit.
TEST_P(Families, AreWrittenBackAsTheyCame) {
  SKIP_WITHOUT_FAMILY(family_);
  const Scratch scratch;
  family_.write_config(scratch, family_.folder());
  train(scratch.folder(), 2, {"train.steps=1", "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0"});
  succeed(megalith({"checkpoint", "export", "run", "--out", "back", "--type", "fp32", "--max-shard-size", "50KB"}),
          scratch);
  const SafeTensorsFolder before(family_.folder()), after(scratch / "back");
  EXPECT_EQ(before.files().size(), after.files().size());
  for (const auto& [name, file] : before.files()) {
    ASSERT_TRUE(after.files().contains(name)) << name;
    EXPECT_EQ(before.entry(name).shape, after.entry(name).shape) << name;
    const auto numel = static_cast<size_t>(before.entry(name).numel);
    Values a(numel), b(numel);
    before.read(name, 0, 1, static_cast<int64_t>(numel), a.data());
    after.read(name, 0, 1, static_cast<int64_t>(numel), b.data());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), numel * sizeof(float)), 0) << name;
  }
  EXPECT_EQ(read_hugging_face_shape(scratch / "back").features(), read_hugging_face_shape(family_.folder()).features());
  const Result rounded = succeed(megalith({"checkpoint", "export", "run", "--out", "rounded"}), scratch);
  EXPECT_NE(rounded.out.find("weights: bf16, as this family is published"), std::string::npos) << rounded.text();
}

// Six heads over four ranks, and three key-value heads, which neither divide four nor are divided by it.
TEST(FamiliesOfHeads, ThatDoNotGoIntoTheRanksAreRefused) {
  const Scratch scratch;
  write_odd(scratch);
  const Args twelve{"train", "config.toml", "model.heads=12", "model.key_value_heads=3",
                    "parallel.tensor_parallel_degree=4"};
  Args six = twelve;
  six[2] = "model.heads=6";
  expect_refused(mpirun(4, twelve), scratch,
                 {"parallel.tensor_parallel_degree = 4 neither divides model.key_value_heads = 3 nor is a multiple",
                  "these fit: 1 3 6 12"});
  expect_refused(mpirun(4, six), scratch, {"parallel.tensor_parallel_degree = 4 does not divide model.heads = 6"});
}

}  // namespace
}  // namespace megalith::e2e
