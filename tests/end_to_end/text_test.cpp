// From a text to a model that continues it, with the commands of the README, and everything a run tells and leaves.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// Sentences of few words: quickly learnt.
std::string some_text(size_t bytes) {
  const std::vector<std::string> who{"the mason", "a carter", "the old king", "nobody"},
      does{"carried", "saw", "sold", "lost"}, what{"a stone", "the gate", "seven carts", "caf\xc3\xa9 au lait"};
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) {
    text += who[random() % 4] + " " + does[random() % 4] + " " + what[random() % 4] + (random() % 3 ? ".\n" : ", and ");
    if (random() % 50 == 0) text += "\xe4\xb8\x96\xe7\x95\x8c ";
  }
  return text;
}

const std::string config_of_text =
    "[model]\nlayers = 2\nhidden = 48\nheads = 3\ncontext = 32\n"
    "[data]\ntrain = \"data/train.bin\"\nvalidation = \"data/validation.bin\"\n"
    "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 4\n"
    "[optimizer]\nlearning_rate = 5e-3\nmin_learning_rate = 5e-4\nwarmup_steps = 5\n"
    "[train]\nsteps = 60\nlog_every = 7\nevaluate_every = 30\nevaluate_batches = 4\n"
    "[checkpoint]\nevery = 20\nkeep = 2\nsettle = 20\n[run]\noutput = \"run\"\n";

int lines_with(const std::string& text, const std::string& word) {
  int n = 0;
  for (size_t at = 0; at < text.size();
       at = text.find('\n', at) == std::string::npos ? text.size() : text.find('\n', at) + 1)
    n += text.substr(at, text.find('\n', at) - at).find(word) != std::string::npos;
  return n;
}

// The 60 steps and 2 evaluations of a run.
void expect_metrics(const std::string& run_folder) {
  int64_t steps = 0, evaluations = 0;
  for (const auto& line : read_metrics(run_folder)) {
    if (line.contains("validation_loss")) {
      evaluations++;
      EXPECT_EQ(line.at("step"), 30 * evaluations);
      EXPECT_GT(line.at("bits_per_byte"), 0);
      continue;
    }
    EXPECT_EQ(line.at("step"), ++steps);
    for (const char* key : {"loss", "grad_norm", "learning_rate", "step_seconds", "tokens_per_second",
                            "model_tflops_per_device", "hardware_tflops_per_device"})
      EXPECT_TRUE(line.at(key).is_number() && line.at(key) > 0) << key << ": " << line;
    EXPECT_EQ(line.at("tokens_so_far"), 8 * 32 * steps);
    EXPECT_TRUE(line.contains("mfu"));
  }
  EXPECT_EQ(steps, 60);
  EXPECT_EQ(evaluations, 2);
}

class Text : public testing::TestWithParam<std::string> {};

TEST_P(Text, becomes_a_model_that_continues_it) {
  const Scratch scratch;
  write_file(scratch / "text.txt", some_text(40000));
  write_file(scratch / "more.txt", some_text(9000));
  write_file(scratch / "config.toml", config_of_text);
  const Result prepared = succeed(megalith({"prepare", "--text", "text.txt", "more.txt", "--tokenizer", GetParam(),
                                            "--out", "data", "--validation", "0.1"}),
                                  scratch);
  EXPECT_NE(prepared.out.find("training tokens"), std::string::npos) << prepared.text();
  for (const char* file : {"train.bin", "train.idx", "validation.bin", "validation.idx"})
    EXPECT_GT(fs::file_size(scratch / "data/" + std::string(file)), 0u) << file;

  const Result trained = train(scratch.folder(), 2, {});
  EXPECT_TRUE(trained.err.empty()) << trained.text();
  const std::string log = read_file(scratch / "run/log.txt");
  for (int step = 1; step <= 60; step++) {  // the first, those of log_every, and before checkpoints and evaluations
    const int told = step == 1 || step % 7 == 0 || step % 20 == 0 || step == 30;
    EXPECT_EQ(lines_with(trained.out, fmt::format("step {}/60  loss ", step)), told) << step;
    EXPECT_EQ(lines_with(log, fmt::format("step {}/60  loss ", step)), told) << step;
  }
  for (const char* word :
       {"norm ", "lr ", "tokens/s", "TFLOP/s", "ETA ", "validation loss ", "bits per byte", "checkpoint run/"})
    EXPECT_NE(trained.out.find(word), std::string::npos) << word;
  EXPECT_EQ(trained.out.find('\r'), std::string::npos) << "a progress bar in a file";

  const nlohmann::json start = read_starts(scratch / "run").at(0);
  EXPECT_EQ(start.at("tokens"), 8 * 32);
  EXPECT_EQ(start.at("ranks"), 2);
  for (const char* memory : {"parameters", "optimizer", "gradients", "saved", "scratch", "communication"})
    EXPECT_GT(start.at("memory_bytes").at(memory), 0) << memory;
  expect_metrics(scratch / "run");
  const std::vector<Step> found = read_steps(scratch / "run");
  EXPECT_LT(found.back().loss, found.front().loss - 1);
  EXPECT_EQ(checkpoints_in(scratch / "run/checkpoints"), (std::vector<std::string>{step_name(40), step_name(60)}));

  // The resolved config is a config, and that of the same run.
  const std::string resolved = read_file(scratch / "run/config.toml");
  fs::rename(scratch / "run", scratch / "first");
  fs::rename(scratch / "config.toml", scratch / "old.toml");
  write_file(scratch / "config.toml", resolved);
  train(scratch.folder(), 2, {});
  EXPECT_EQ(read_steps(scratch / "run"), found);
  EXPECT_EQ(read_file(scratch / "run/config.toml"), resolved);
  expect_same_rank_files(scratch / "first/checkpoints/step-00000060", scratch / "run/checkpoints/step-00000060");

  // `evaluate` on the text that the run evaluated on, from a run folder, gives the run's loss.
  const Result evaluated = succeed(
      megalith({"evaluate", "--checkpoint", "run", "--data", "data/validation.bin", "--sequences", "32"}), scratch);
  double loss = 0, bits = 0;
  long long tokens = 0;
  ASSERT_EQ(std::sscanf(evaluated.out.c_str(), "loss %lf nats a token over %lld tokens, %lf bits per byte", &loss,
                        &tokens, &bits),
            3)
      << evaluated.text();
  const auto last = read_metrics(scratch / "run").back();
  EXPECT_NEAR(loss, last.at("validation_loss").get<double>(), 1e-5);
  EXPECT_NEAR(bits, last.at("bits_per_byte").get<double>(), 1e-4);

  // Samples: the same seed gives the same text, wherever it is asked from; another seed another; temperature 0 needs
  // none.
  const auto generate = [&](Args more) {
    Args args{"generate", "--checkpoint", "run", "--prompt", "the old", "--tokens", "60"};
    args.insert(args.end(), more.begin(), more.end());
    return succeed(megalith(args), scratch).out;
  };
  const std::string sample = generate({"--seed", "5"});
  EXPECT_TRUE(sample.starts_with("the old")) << sample;
  EXPECT_GT(sample.size(), 20u);
  EXPECT_EQ(sample, generate({"--seed", "5"}));
  EXPECT_NE(sample, generate({"--seed", "6"}));
  EXPECT_EQ(generate({"--temperature", "0", "--seed", "1"}), generate({"--temperature", "0", "--seed", "2"}));
  EXPECT_EQ(generate({"--top-k", "1", "--seed", "3"}), generate({"--temperature", "0"}));
  EXPECT_EQ(succeed(megalith({"generate", "--checkpoint", "run", "--prompt", "the old", "--tokens", "0"}), scratch).out,
            "the old\n");
  const Scratch other;
  const Result elsewhere = run(megalith({"generate", "--checkpoint", scratch / "run/checkpoints/step-00000060",
                                         "--prompt", "the old", "--tokens", "60", "--seed", "5"}),
                               other.folder());
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.text();
  EXPECT_EQ(elsewhere.out, sample);
  // An export knows the token that ends a text, which is the tokenizer's last.
  const std::string checkpoint = "run/checkpoints/step-00000060";
  const Result exported = succeed(megalith({"checkpoint", "export", checkpoint, "--out", "export"}), scratch);
  const auto hugging_face = nlohmann::json::parse(read_file(scratch / "export/config.json"));
  const int64_t last_token = GetParam() == "bytes" ? 256 : 299;
  EXPECT_EQ(hugging_face.at("eos_token_id"), last_token) << hugging_face;
  EXPECT_NE(exported.out.find(fmt::format("end of text: token {}, of ", last_token)), std::string::npos)
      << exported.text();
  // The run folder holds it, too, wherever the data's has gone.
  fs::rename(scratch / "data/tokenizer", scratch / "moved");
  const Result held = succeed(megalith({"checkpoint", "export", checkpoint, "--out", "held"}), scratch);
  EXPECT_NE(held.out.find(fmt::format("end of text: token {}, of ", last_token)), std::string::npos) << held.text();
  fs::rename(scratch / "run/tokenizer", scratch / "held/tokenizer");
  for (const auto& [more, id] :
       {std::pair{Args{}, nlohmann::json()}, {Args{"--tokenizer", "moved"}, nlohmann::json(last_token)}}) {
    Args args{"checkpoint", "export", checkpoint, "--out", fmt::format("export{}", more.size())};
    args.insert(args.end(), more.begin(), more.end());
    succeed(megalith(args), scratch);
    EXPECT_EQ(nlohmann::json::parse(read_file(scratch / args[4] + "/config.json")).at("eos_token_id"), id);
  }
  fs::rename(scratch / "moved", scratch / "run/tokenizer");
  // No prompt, and one that is no UTF-8.
  EXPECT_GT(succeed(megalith({"generate", "--checkpoint", "run", "--tokens", "5"}), scratch).out.size(), 0u);
  EXPECT_TRUE(succeed(megalith({"generate", "--checkpoint", "run", "--prompt", "\xff\xfe", "--tokens", "5"}), scratch)
                  .out.starts_with("\xff\xfe"));
}

INSTANTIATE_TEST_SUITE_P(Text, Text, testing::Values("bytes", "train:300"),
                         [](const auto& suite) { return suite.param.substr(0, 5); });

// data.tokenizer in the words of `prepare`.
TEST(TextData, tokenizer_by_name) {
  const Scratch scratch;
  write_file(scratch / "text.txt", some_text(5000));
  write_file(scratch / "config.toml", config_of_text);
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data", "--validation", "0.2"}),
          scratch);
  train(scratch.folder(), 1, {"data.tokenizer=bytes", "train.steps=1", "optimizer.decay_steps=60"});
  const std::string sample = succeed(megalith({"generate", "--checkpoint", "run", "--tokens", "3"}), scratch).out;
  EXPECT_FALSE(sample.empty());
}

// The time limit ends a run as if it were complete.
TEST(TextData, minutes_end_a_run_with_a_checkpoint) {
  const Scratch scratch;
  write_file(scratch / "text.txt", some_text(20000));
  write_file(scratch / "config.toml", config_of_text);
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data"}), scratch);
  const Args overrides{"data.validation=", "train.evaluate_every=0", "train.minutes=0.02", "train.steps=1000000",
                       "optimizer.decay_steps=100"};
  const Result result = train(scratch.folder(), 2, overrides);
  EXPECT_LT(result.seconds, 10);
  EXPECT_EQ(count(result.out, "; stopped after train.minutes = 0.02, before step 1000000; run"), 1u) << result.text();
  const std::vector<Step> steps = read_steps(scratch / "run");
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(checkpoints_in(scratch / "run/checkpoints").back(), step_name(steps.back().step));
}

}  // namespace
}  // namespace megalith::e2e
