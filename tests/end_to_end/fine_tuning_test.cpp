// The first lines of trainer/FINE_TUNING.md, on a small model of three families: prepare, train, chat, export.
#include <fmt/format.h>

#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

struct TunedFamily {
  std::string type, keys;  // model_type of its config.json; keys of [model]
};

void PrintTo(const TunedFamily& family, std::ostream* out) { *out << family.type; }

constexpr const char *llama =
                         "norm = \"rms\"\npositions = \"rotary\"\nactivation = \"swiglu\"\nbias = false\n"
                         "qkv_bias = false\ntied_head = false\nkey_value_heads = 2\nfeed_forward = 96\n",
                     *qwen =
                         "norm = \"rms\"\npositions = \"rotary\"\nactivation = \"swiglu\"\nbias = false\n"
                         "qkv_bias = true\ntied_head = true\nkey_value_heads = 2\nfeed_forward = 96\n";

class FineTuning : public testing::TestWithParam<TunedFamily> {
 protected:
  // Writes conversations, and in model/ a Hugging Face checkpoint that has seen only a text.
  FineTuning() {
    std::string text, conversations;
    for (int i = 0; i < 300; i++) text += fmt::format("{} apples and {} pears are in the basket. ", i, 3 * i);
    write_file(scratch_ / "text.txt", text);
    for (int i = 0; i < 60; i++)
      conversations += fmt::format(
          R"({{"messages":[{{"role":"user","content":"Who has {} apples?"}},{{"role":"assistant","content":"Ada."}}]}})"
          "\n",
          i);
    write_file(scratch_ / "conversations.jsonl", conversations);
    write_file(
        scratch_ / "base.toml",
        fmt::format("[model]\nlayers = 2\nhidden = 48\nheads = 4\ncontext = 64\n{}[batch]\nglobal_batch_size = 4\n"
                    "[optimizer]\nlearning_rate = 3e-3\n[train]\nsteps = 30\n[run]\noutput = \"base\"\n",
                    GetParam().keys));
    follow({"prepare", "--text", "text.txt", "--tokenizer", "train:300", "--out", "data"});
    follow({"train", "base.toml", "data.train=data"});
    follow({"checkpoint", "export", "base", "--out", "model"});
  }

  Result follow(const Args& args) { return succeed(megalith(args), scratch_); }

  // Follows the page with a recipe. A small model takes a higher rate and fewer steps.
  void follow_page(const std::string& recipe) {
    const std::string run_folder = "runs/" + recipe;
    follow({"prepare", "--text", "conversations.jsonl", "--template", "chatml", "--tokenizer", "model", "--validation",
            "0.2", "--sequence-length", "64", "--out", run_folder + "/data"});
    const Result trained = follow({"train", recipe, "checkpoint.init_from=model", "batch.sequence_length=64",
                                   "precision.compute=fp32", "optimizer.learning_rate=5e-3", "optimizer.warmup_steps=5",
                                   "train.steps=60", "train.evaluate_every=30"});
    EXPECT_EQ(count(trained.out, "validation loss"), 2u) << trained.text();
    const Result answered =
        succeed_with_input({"chat", run_folder, "--temperature", "0", "--tokens", "8"}, "Who has 7 apples?\n");
    EXPECT_NE(answered.out.find("Ada."), std::string::npos) << answered.text();
  }

  Result succeed_with_input(const Args& args, const std::string& input) {
    write_file(scratch_ / "input", input);
    Result result = run(megalith(args), scratch_.folder(), 60, "exec < input");
    EXPECT_EQ(result.status, 0) << result.text();
    return result;
  }

  Scratch scratch_;
};

TEST_P(FineTuning, ThePagesLinesWork) {
  follow_page("finetune");
  follow({"checkpoint", "export", "runs/finetune", "--out", "tuned"});
  const std::string config = read_file(scratch_ / "tuned/config.json");
  EXPECT_NE(config.find("\"" + GetParam().type + "\""), std::string::npos) << config;
}

TEST_P(FineTuning, ThePagesLinesWorkWithAdapters) {
  follow_page("lora");
  follow({"checkpoint", "export", "runs/lora", "--out", "tuned"});
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "tuned/adapter_config.json"));
}

// A model is the first word, or --checkpoint, in any order with overrides.
TEST_P(FineTuning, TheModelIsTheFirstWord) {
  const auto generated = [&](const Args& more) {
    Args args{"generate"};
    args.insert(args.end(), more.begin(), more.end());
    args.insert(args.end(), {"--prompt", "3 apples", "--tokens", "5", "--temperature", "0"});
    return follow(args).out;
  };
  const std::string expected = generated({"--checkpoint", "base"});
  EXPECT_EQ(generated({"base"}), expected);
  EXPECT_EQ(generated({"base", "run.device=cpu"}), expected);
  EXPECT_EQ(generated({"run.device=cpu", "--checkpoint", "base"}), expected);
  EXPECT_EQ(generated({"--checkpoint", "base", "run.device=cpu", "precision.compute=fp32"}), expected);
  const auto refused = [&](const Args& args) { return run(megalith(args), scratch_.folder(), 60).err; };
  EXPECT_NE(refused({"generate", "--prompt", "a"}).find("model is required (run folder"), std::string::npos);
  EXPECT_NE(refused({"evaluate", "base", "--checkpoint", "other", "--text", "text.txt"})
                .find("base and --checkpoint other: give one"),
            std::string::npos);
  EXPECT_NE(follow({"evaluate", "base", "--text", "text.txt"}).out.find("bits per byte"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Families, FineTuning,
                         testing::Values(TunedFamily{"gpt2", ""}, TunedFamily{"llama", llama},
                                         TunedFamily{"qwen2", qwen}),
                         [](const auto& family) { return family.param.type; });

}  // namespace
}  // namespace megalith::e2e
