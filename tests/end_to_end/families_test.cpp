// Models of other families than GPT-2, against independent references in float64 (../shared/reference/families): what
// training must do, step by step, on one rank and in layouts; and that the weights are read as they are stored.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoints/hugging_face.h"
#include "checkpoints/reader.h"
#include "checkpoints/safetensors_folder.h"
#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/layout.h"
#include "tests/end_to_end/reference_tensors.h"

namespace megalith::e2e {
namespace {

// The tensors of a reference that hold a parameter of ours, joined by rows: written out by hand, beside the program's
// own table.
Values theirs(const std::string& h5, const std::string& kind, const std::string& ours, bool neox, int64_t heads) {
  std::string stem = ours, layer;
  if (stem.starts_with("h.")) {
    const size_t end = stem.find('.', 2);
    layer = stem.substr(2, end - 2);
    stem = stem.substr(end + 1);
  }
  const size_t dot = stem.rfind('.');
  const std::string what = stem.substr(dot), base = stem.substr(0, dot);
  const std::string in_layer = (neox ? "gpt_neox.layers." : "model.layers.") + layer + ".";
  std::vector<std::string> names;
  if (base == "wte") names = {neox ? "gpt_neox.embed_in" : "model.embed_tokens"};
  if (base == "ln_f") names = {neox ? "gpt_neox.final_layer_norm" : "model.norm"};
  if (base == "lm_head") names = {neox ? "embed_out" : "lm_head"};
  if (base == "ln_1") names = {in_layer + "input_layernorm"};
  if (base == "ln_2") names = {in_layer + "post_attention_layernorm"};
  if (base == "attn.q_norm") names = {in_layer + "self_attn.q_norm"};
  if (base == "attn.k_norm") names = {in_layer + "self_attn.k_norm"};
  if (base == "attn.c_proj") names = {in_layer + (neox ? "attention.dense" : "self_attn.o_proj")};
  if (base == "mlp.c_proj") names = {in_layer + (neox ? "mlp.dense_4h_to_h" : "mlp.down_proj")};
  if (base == "attn.c_attn")
    for (const char* part : {"q", "k", "v"}) names.push_back(in_layer + "self_attn." + part + "_proj");
  if (base == "mlp.c_fc") names = {in_layer + "mlp.gate_proj", in_layer + "mlp.up_proj"};
  if (neox && base == "attn.c_attn") names = {in_layer + "attention.query_key_value"};
  if (neox && base == "mlp.c_fc") names = {in_layer + "mlp.dense_h_to_4h"};
  Values all;
  for (const std::string& name : names) {
    const Values values = read_hdf5(h5, kind + "/" + name + what);
    all.insert(all.end(), values.begin(), values.end());
  }
  if (!neox || base != "attn.c_attn") return all;
  // From (heads, 3, rows of a head) to (3, heads, rows of a head).
  const size_t H = static_cast<size_t>(heads), block = all.size() / (3 * H);
  Values sorted(all.size());
  for (size_t h = 0; h < H; h++)
    for (size_t k = 0; k < 3; k++)
      std::copy_n(all.begin() + static_cast<ptrdiff_t>((h * 3 + k) * block), block,
                  sorted.begin() + static_cast<ptrdiff_t>((k * H + h) * block));
  return sorted;
}

struct Family {
  std::string name;
  std::map<int, std::vector<std::string>> layouts;  // by ranks, in the words of layout.h
};
void PrintTo(const Family& family, std::ostream* to) { *to << family.name; }

class Families : public testing::TestWithParam<Family> {
 protected:
  std::string folder() const { return reference("families/" + GetParam().name); }
  nlohmann::json recipe() const { return nlohmann::json::parse(read_file(folder() + "/reference.json")).at("recipe"); }
  bool neox() const { return GetParam().name == "neox"; }

  // The reference's config but for the model, which its weights bring.
  void write_config(const Scratch& scratch, const std::string& weights) const {
    write_reference_config(scratch / "config.toml", folder(), weights);
    const std::string text = read_file(scratch / "config.toml");
    write_file(scratch / "config.toml", text.substr(text.find("[data]")));
  }
  // The largest distance of a parameter's values, at `path` of a checkpoint, from those of this kind.
  double furthest(const std::string& checkpoint, const std::string& path, const std::string& kind) const {
    CheckpointReader reader(checkpoint);
    double worst = 0;
    size_t tensors = 0;
    for (const std::string& name : reader.names()) {
      if (!name.starts_with(path)) continue;
      const std::vector<int64_t> shape = reader.shape(name);
      Values found(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
      reader.read(whole_tensor(name, shape), found.data());
      const Values expected =
          theirs(folder() + "/reference.h5", kind, name.substr(path.size()), neox(), recipe().at("heads"));
      EXPECT_FALSE(expected.empty()) << name;
      worst = std::max(worst, relative_error(found, expected));
      tensors++;
    }
    EXPECT_GT(tensors, 10u);
    return worst;
  }
};

#define SKIP_WITHOUT_FAMILY() \
  if (!std::filesystem::exists(folder())) GTEST_SKIP() << "no reference at " << folder()

TEST_P(Families, TakeTheCourseOfTheReferenceInEveryLayout) {
  SKIP_WITHOUT_FAMILY();
  const Scratch scratch;
  write_config(scratch, folder());
  std::vector<Step> expected;
  const auto json = nlohmann::json::parse(read_file(folder() + "/reference.json"));
  for (const auto& s : json.at("steps"))
    expected.push_back({s.at("step").get<int64_t>() + 1, s.at("loss"), s.at("grad_norm"), s.at("lr")});
  int run = 0;
  for (const auto& [ranks, layouts] : GetParam().layouts)
    for (const std::string& words : layouts) {
      SCOPED_TRACE(fmt::format("{} ranks: {}", ranks, words));
      const std::string name = fmt::format("run{}", run++);
      Args args = overrides_of(words);
      args.push_back("run.output=" + name);
      train(scratch.folder(), ranks, args);
      const std::string errors = expect_same_course({read_steps(scratch / name), {}}, {expected, {}});
      const double weights =
          furthest(scratch / (name + "/checkpoints/" + step_name(std::ssize(expected))), "parameters/", "final");
      EXPECT_LT(weights, 1e-3);
      fmt::print("  {} on {}: {}: {}; weights {:.1e}\n", GetParam().name, ranks, words, errors, weights);
    }
}

// Checkpoints keep every choice of the model, and go on in any layout.
TEST_P(Families, GoOnInAnotherLayout) {
  SKIP_WITHOUT_FAMILY();
  const Scratch scratch;
  write_config(scratch, folder());
  const auto& [ranks, words] = *GetParam().layouts.rbegin();
  train(scratch.folder(), 1, {"train.steps=4"});
  write_config(scratch, "");  // the checkpoint alone says what the model is
  Args args = overrides_of(words.back());
  for (const std::string& key : shape_keys())
    args.push_back(fmt::format("model.{}={}", key, shape_value(read_hugging_face_shape(folder()), key)));
  train(scratch.folder(), ranks, args);
  const size_t steps = nlohmann::json::parse(read_file(folder() + "/reference.json")).at("steps").size();
  EXPECT_EQ(read_steps(scratch / "run").size(), steps);
  EXPECT_LT(furthest(scratch / ("run/checkpoints/" + step_name(static_cast<int64_t>(steps))), "parameters/", "final"),
            1e-3);
  args.push_back(GetParam().name == "neox" ? "model.parallel_residual=false" : "model.norm=layer");
  args.push_back("train.steps=9");
  const Result other = run(mpirun(ranks,
                                  [&] {
                                    Args command{"train", "config.toml"};
                                    command.insert(command.end(), args.begin(), args.end());
                                    return command;
                                  }()),
                           scratch.folder());
  EXPECT_NE(other.status, 0);
  EXPECT_NE(other.text().find("is of another model: model."), std::string::npos) << other.text();
}

// A step that moves nothing, without clipping and with beta1 = 0: the first moments are the gradient, and the weights
// those that were read. The older form of config.json is of the same model.
TEST_P(Families, GradientsAndWeightsAreTheReferencesFromBothFormsOfConfig) {
  SKIP_WITHOUT_FAMILY();
  const Scratch scratch;
  std::filesystem::copy(folder(), scratch / "older", std::filesystem::copy_options::recursive);
  std::filesystem::permissions(scratch / "older", std::filesystem::perms::owner_all);
  std::filesystem::remove(scratch / "older/config.json");
  std::filesystem::copy_file(folder() + "/config.v4.json", scratch / "older/config.json");
  std::vector<std::vector<Step>> steps;
  for (const std::string& weights : {folder(), scratch / "older"}) {
    write_config(scratch, weights);
    const std::string name = fmt::format("run{}", steps.size());
    train(scratch.folder(), 2,
          {"train.steps=1", "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0",
           "optimizer.gradient_clip=0", "optimizer.beta1=0", "run.output=" + name});
    steps.push_back(read_steps(scratch / name));
    const std::string checkpoint = scratch / (name + "/checkpoints/" + step_name(1));
    const double error = furthest(checkpoint, "moments/first/", "grads");
    EXPECT_LT(error, 2e-5);
    fmt::print("  {}: gradients {:.1e}\n", GetParam().name, error);
  }
  EXPECT_EQ(steps[0], steps[1]);
}

// Steps that move nothing, and an export: the tensors of the folder that was read, bit for bit.
TEST_P(Families, AreWrittenBackAsTheyCame) {
  SKIP_WITHOUT_FAMILY();
  const Scratch scratch;
  write_config(scratch, folder());
  train(scratch.folder(), 2, {"train.steps=1", "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0"});
  succeed(megalith({"checkpoint", "export", "run", "--out", "back", "--type", "fp32", "--max-shard-size", "50KB"}),
          scratch);
  const SafeTensorsFolder before(folder()), after(scratch / "back");
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
  EXPECT_EQ(read_hugging_face_shape(scratch / "back").features(), read_hugging_face_shape(folder()).features());
  const Result rounded = succeed(megalith({"checkpoint", "export", "run", "--out", "rounded"}), scratch);
  EXPECT_NE(rounded.out.find("weights: bf16, as this family is published"), std::string::npos) << rounded.text();
}

const std::vector<std::string> on_2{"full_shard microbatch=1", "tensor=2", "tensor=2 sequence recompute=selective",
                                    "pipeline=2 microbatch=1"},
    on_4{"shard_optimizer shard=2 recompute microbatch=1", "tensor=2 sequence pipeline=2 recompute",
         "tensor=2 full_shard microbatch=1"},
    on_8{"tensor=2 pipeline=2 shard_grad_op microbatch=1", "tensor=2 sequence full_shard shard=2 recompute=selective",
         "full_shard shard=4 recompute offload_optimizer=1 offload_parameters microbatch=1"};
const std::vector<std::string> on_1{"microbatch=2", "recompute microbatch=6", "recompute=selective microbatch=3"};

INSTANTIATE_TEST_SUITE_P(
    Of, Families,
    testing::Values(Family{"llama3", {{1, on_1}, {2, on_2}, {4, on_4}, {8, on_8}}},
                    Family{"qwen3", {{1, on_1}, {2, on_2}, {4, on_4}, {8, on_8}}},
                    Family{"neox",
                           {{1, on_1},
                            {2, on_2},
                            {4, {"tensor=4", "tensor=4 sequence recompute=selective"}},
                            {8, {"tensor=4 sequence pipeline=2 recompute"}}}},
                    Family{"qwen2", {{1, {"microbatch=2"}}, {2, on_2}, {8, {on_8[1]}}}},
                    Family{"llama2", {{1, {"microbatch=2"}}, {2, {"tensor=2 sequence"}}, {4, {"tensor=2 pipeline=2"}}}},
                    // One key-value head is on one rank only.
                    Family{"mistral",
                           {{1, {"recompute=selective microbatch=2"}},
                            {3, {"pipeline=3 microbatch=1", "full_shard microbatch=1"}},
                            {6, {"pipeline=3 shard_optimizer microbatch=1"}}}}),
    [](const auto& suite) { return suite.param.name; });

TEST(FamiliesOfOneKeyValueHead, AreRefusedOnSeveralTensorRanks) {
  const std::string folder = reference("families/mistral");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no reference at " << folder;
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", folder, folder);
  expect_refused(mpirun(2, {"train", "config.toml", "parallel.tensor_parallel_degree=2"}), scratch,
                 {"does not divide model.key_value_heads = 1", "a key-value head is on one rank only"});
}

}  // namespace
}  // namespace megalith::e2e
