// Runs with adapters, from outside: they resume in any layout to the bit, refuse another base, and PEFT trains, opens
// and makes the same.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// A model, its folder of Hugging Face, and the config of a run with adapters beside it.
struct AdaptedFamily {
  std::string name;
  Args model;
  std::string modules;  // of TOML
  Args peft_modules;
};
void PrintTo(const AdaptedFamily& family, std::ostream* out) { *out << family.name; }

const std::vector<AdaptedFamily> adapted_families{
    {"gpt2", {}, "\"all-linear\"", {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}},
    {"llama",
     {"model.norm=rms", "model.bias=false", "model.qkv_bias=false", "model.tied_head=false", "model.positions=rotary",
      "model.activation=swiglu", "model.feed_forward=80", "model.key_value_heads=1"},
     "[\"q_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]",
     {"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}},
    {"neox",
     {"model.tied_head=false", "model.positions=rotary", "model.rotary_share=0.25", "model.activation=gelu_erf",
      "model.parallel_residual=true"},
     "[\"query_key_value\", \"dense_4h_to_h\"]",
     {"query_key_value", "dense_4h_to_h"}}};

void make_base(const Scratch& scratch, const AdaptedFamily& family, const std::string& seed = "1",
               const std::string& folder = "base") {
  if (!fs::exists(scratch / "data")) {
    std::string text;
    for (int i = 0; i < 400; i++)
      for (const char* sentence : {"the old king sold a stone.\n", "nobody sold the gate, and ", "a carter saw it.\n"})
        text += sentence;
    write_file(scratch / "text.txt", text);
    succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data"}), scratch);
  }
  write_file(scratch / "config.toml",
             "[model]\nlayers = 2\nhidden = 32\nheads = 2\ncontext = 64\n[data]\ntrain = \"data/train.bin\"\n"
             "[batch]\nglobal_batch_size = 4\n[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 5\n"
             "[train]\nsteps = 20\n[run]\ndevice = \"cpu\"\n");
  Args overrides = family.model;
  overrides.insert(overrides.end(), {"run.output=" + folder + ".run", "train.seed=" + seed});
  train(scratch.folder(), 1, overrides);
  succeed(megalith({"checkpoint", "export", folder + ".run", "--out", folder, "--type", "fp32"}), scratch);
}

void write_adapter_config(const Scratch& scratch, const AdaptedFamily& family, const std::string& more = "") {
  write_file(scratch / "config.toml",
             "[adapter]\nrank = 4\nalpha = 6\ntarget_modules = " + family.modules +
                 "\n[data]\ntrain = \"data/train.bin\"\nshuffle = false\n[batch]\nglobal_batch_size = 4\n"
                 "[optimizer]\nlearning_rate = 1e-2\ndecay = \"constant\"\n[train]\nsteps = 6\n"
                 "[checkpoint]\ninit_from = \"base\"\n[run]\ndevice = \"cpu\"\n" +
                 more);
}

Result evaluation_of(const Scratch& scratch, const std::string& checkpoint) {
  return succeed(megalith({"evaluate", "--checkpoint", checkpoint, "--data", "data/train.bin", "--sequences", "4",
                           "--device", "cpu"}),
                 scratch);
}
double loss_said_in(const Result& said) { return std::stod(said.out.substr(said.out.find("loss ") + 5)); }
std::string greedy_text(const Scratch& scratch, const std::string& checkpoint) {
  return succeed(megalith({"generate", "--checkpoint", checkpoint, "--prompt", "the old", "--tokens", "30",
                           "--temperature", "0", "--device", "cpu"}),
                 scratch)
      .out;
}

class AdapterRuns : public testing::TestWithParam<AdaptedFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, AdapterRuns, testing::ValuesIn(adapted_families),
                         [](const auto& suite) { return suite.param.name; });

TEST_P(AdapterRuns, resume_to_the_bit_and_are_merged) {
  const Scratch scratch;
  make_base(scratch, GetParam());
  write_adapter_config(scratch, GetParam(), "output = \"run\"\n");
  train(scratch.folder(), 1, {"adapter.dropout=0.1"});
  train(scratch.folder(), 1, {"adapter.dropout=0.1", "train.steps=3", "optimizer.decay_steps=6", "run.output=parts"});
  train(scratch.folder(), 1, {"adapter.dropout=0.1", "run.output=parts"});
  expect_same_rank_files(scratch / "run/checkpoints" + "/" + step_name(6),
                         scratch / "parts/checkpoints" + "/" + step_name(6));
  // Another layout goes on from it, within rounding.
  train(scratch.folder(), 1, {"adapter.dropout=0.1", "train.steps=3", "optimizer.decay_steps=6", "run.output=other"});
  train(scratch.folder(), 2,
        {"adapter.dropout=0.1", "run.output=other", "batch.microbatch_size=1",
         GetParam().name == "llama" ? "parallel.sharding_strategy=full_shard" : "parallel.tensor_parallel_degree=2"});
  const double loss = loss_said_in(evaluation_of(scratch, "run"));
  EXPECT_NEAR(loss_said_in(evaluation_of(scratch, "other")), loss, 1e-5 * loss);
  EXPECT_GT(std::abs(loss_said_in(evaluation_of(scratch, "base")) - loss), 1e-3) << "the adapters act";
  // The last evaluation of a run is of adapters beside the weights, that of a checkpoint of merged weights.
  train(scratch.folder(), 1,
        {"adapter.dropout=0.1", "run.output=validated", "data.validation=data/train.bin", "data.allow_overlap=true",
         "train.evaluate_batches=1"});
  EXPECT_NEAR(read_metrics(scratch / "validated").back().at("validation_loss").get<double>(),
              loss_said_in(evaluation_of(scratch, "validated")), 1e-5 * loss);
  succeed(megalith({"checkpoint", "export", "run", "--out", "merged", "--merged", "--type", "fp32"}), scratch);
  EXPECT_NEAR(loss_said_in(evaluation_of(scratch, "merged")), loss, 1e-6);
  EXPECT_EQ(greedy_text(scratch, "merged"), greedy_text(scratch, "run"));
  // Weights of a run with adapters are where another may begin.
  write_file(scratch / "config.toml",
             "[data]\ntrain = \"data/train.bin\"\n[batch]\nglobal_batch_size = 4\n[train]\nsteps = 1\n[checkpoint]\n"
             "init_from = \"run\"\n[run]\ndevice = \"cpu\"\noutput = \"full\"\n");
  train(scratch.folder(), 1, {});
}

TEST(AdapterRun, another_base_is_refused_and_a_moved_one_is_found) {
  const Scratch scratch;
  make_base(scratch, adapted_families[0]);
  make_base(scratch, adapted_families[0], "2", "other");
  write_adapter_config(scratch, adapted_families[0], "output = \"run\"\n");
  train(scratch.folder(), 1, {"train.steps=2"});
  const auto manifest =
      nlohmann::json::parse(read_file(scratch / "run/checkpoints" + "/" + step_name(2) + "/manifest.json"));
  const std::string fingerprint = manifest.at("state").at("base").at("fingerprint");
  for (const auto& file : manifest.at("files"))
    for (const auto& dataset : file.at("datasets"))
      EXPECT_NE(dataset.dump().find("lora_"), std::string::npos) << "only adapters are saved: " << dataset;
  const Result refused = run(megalith({"train", "config.toml", "checkpoint.init_from=other"}), scratch.folder(), 60);
  EXPECT_NE(refused.status, 0) << refused.text();
  for (const std::string& words : {"with the fingerprint " + fingerprint, std::string("/other has ")})
    EXPECT_NE(refused.text().find(words), std::string::npos) << refused.text();
  fs::rename(scratch / "base", scratch / "moved");
  fs::rename(scratch / "other", scratch / "base");
  const Result wrong = run(megalith({"generate", "--checkpoint", "run", "--prompt", "a"}), scratch.folder(), 60);
  EXPECT_NE(wrong.status, 0);
  EXPECT_NE(wrong.text().find("with the fingerprint " + fingerprint), std::string::npos) << wrong.text();
  train(scratch.folder(), 1, {"train.steps=3", "checkpoint.init_from=moved", "checkpoint.allow_changes=true"});
  evaluation_of(scratch, "run");
  fs::remove_all(scratch / "moved");
  const Result absent = run(megalith({"generate", "--checkpoint", "run", "--prompt", "a"}), scratch.folder(), 60);
  EXPECT_NE(absent.text().find("moved is missing; restore it"), std::string::npos) << absent.text();
}

// The base is a run folder, whose newest checkpoint is another one by then.
TEST(AdapterRun, goes_on_from_its_base_when_that_run_has_gone_on) {
  const Scratch scratch;
  make_base(scratch, adapted_families[0]);
  const auto adapt = [&](const std::string& steps) {
    write_adapter_config(scratch, adapted_families[0]);
    train(scratch.folder(), 1,
          {"checkpoint.init_from=base.run", "run.output=run", "train.steps=" + steps, "optimizer.decay_steps=9"});
  };
  adapt("2");
  succeed(
      megalith({"train", "base.run", "train.steps=22", "optimizer.decay=constant", "checkpoint.allow_changes=true"}),
      scratch);
  adapt("3");
  EXPECT_EQ(read_steps(scratch / "run").size(), 3u);
}

class Peft : public testing::TestWithParam<AdaptedFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, Peft, testing::ValuesIn(adapted_families),
                         [](const auto& suite) { return suite.param.name; });

TEST_P(Peft, makes_trains_and_opens_what_we_do) {
  const std::string python = python_with("torch, transformers, peft");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON names no Python with torch, transformers and peft";
  const Scratch scratch;
  make_base(scratch, GetParam());
  const auto peft = [&](Args args) {
    args.insert(args.begin(),
                {"env", "HF_HUB_OFFLINE=1", python, MEGALITH_SOURCE_DIR "/tests/end_to_end/peft_agrees.py"});
    return succeed(args, scratch);
  };
  Args make{"make", "base", "adapter", "4", "6"};
  make.insert(make.end(), GetParam().peft_modules.begin(), GetParam().peft_modules.end());
  peft(make);
  write_adapter_config(scratch, GetParam(), "output = \"run\"\n");
  train(scratch.folder(), 1, {"adapter.init_from=adapter"});
  const auto losses =
      nlohmann::json::parse(peft({"train", "base", "adapter", "data/train.bin", "64", "4", "6", "1e-2", "0.1"}).out);
  const std::vector<Step> steps = read_steps(scratch / "run");
  ASSERT_EQ(steps.size(), losses.size());
  for (size_t s = 0; s < steps.size(); s++)
    EXPECT_NEAR(steps[s].loss, losses[s].get<double>(), 1e-5 * steps[s].loss) << "step " << s;
  EXPECT_GT(std::abs(steps.back().loss - steps.front().loss), 1e-3) << "a hundred times the tolerance";

  succeed(megalith({"checkpoint", "export", "run", "--out", "exported"}), scratch);
  const auto opened =
      nlohmann::json::parse(peft({"open", "base", "exported", "data/train.bin", "64", "4", "the old"}).out);
  const double loss = loss_said_in(evaluation_of(scratch, "run"));
  EXPECT_NEAR(opened[0].get<double>(), loss, 1e-5 * loss);
  EXPECT_EQ(opened[1].get<std::string>() + "\n", greedy_text(scratch, "run"));

  succeed(megalith({"checkpoint", "export", "run", "--out", "merged", "--merged", "--type", "fp32"}), scratch);
  const auto merged = nlohmann::json::parse(peft({"open", "merged", "", "data/train.bin", "64", "4", "the old"}).out);
  EXPECT_NEAR(merged[0].get<double>(), loss, 1e-5 * loss);
  EXPECT_EQ(merged[1], opened[1]);
}

}  // namespace
}  // namespace megalith::e2e
