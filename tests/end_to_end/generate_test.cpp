// A trained model used under mpirun: the same texts and the same scores in every layout, and those of transformers.
#include <fmt/format.h>

#include <cmath>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

const std::string small_config =
    "[model]\nlayers = 3\nhidden = 32\nheads = 4\ncontext = 48\n"
    "[data]\ntrain = \"data/train.bin\"\nvalidation = \"data/validation.bin\"\n"
    "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 8\n"
    "[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 5\n"
    "[train]\nsteps = 40\n[run]\noutput = \"run\"\n";

const std::string four_questions =
    "{\"ctx\": \"Any option of the config\", \"endings\": [\"can be given\", \"is a sentence\", \"x\"], \"label\": "
    "0}\n{\"context\": \"The prediction is\", \"endings\": [\"a clock on the dry run\", \"caf\u00e9\"], \"label\": "
    "\"1\"}\n{\"text\": \"Where a text is far longer than the model can see of it at a time, which is what its context "
    "says, it counts by its end alone, whatever came before and however long it was: the model\"}\n{\"text\": \"in and "
    "out\"}\n";

// A model of 300 pieces, trained on two of our pages.
class Generate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    write_file(*scratch_ / "text.txt", read_file(MEGALITH_SOURCE_DIR "/configs/README.md") +
                                           read_file(MEGALITH_SOURCE_DIR "/trainer/README.md"));
    write_file(*scratch_ / "config.toml", small_config);
    write_file(*scratch_ / "questions.jsonl", four_questions);
    write_file(*scratch_ / "prompts.txt", "The model\n\nA checkpoint of any layout resumes\n`megalith plan`\nTo\n");
    succeed(
        megalith({"prepare", "--text", "text.txt", "--tokenizer", "train:300", "--out", "data", "--validation", "0.1"}),
        *scratch_);
    train(scratch_->folder(), 1, {});
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string with(const std::string& command, int ranks, const Args& more, const std::string& before = "") {
    Args args{command, "--checkpoint", "run"};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = run(ranks == 1 ? megalith(args) : mpirun(ranks, args), scratch_->folder(), 120, before);
    EXPECT_EQ(result.status, 0) << result.text();
    return result.out;
  }
  static Args joined(Args a, const Args& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> Generate::scratch_;

const std::vector<std::pair<int, Args>> layouts_of_generate{
    {2, {"parallel.tensor_parallel_degree=2"}},
    {4, {"parallel.tensor_parallel_degree=4"}},
    {4, {}},
    {4, {"parallel.tensor_parallel_degree=2", "parallel.max_live_parameters=0"}},
    {2, {"parallel.sharding_strategy=no_shard"}}};

TEST_F(Generate, TextsAreTheSameInEveryLayout) {
  const Args greedy{"--prompts", "prompts.txt", "--tokens", "70", "--temperature", "0", "--batch", "3"};
  const Args sampled{"--prompts", "prompts.txt", "--tokens", "20", "--samples", "2",
                     "--top-p",   "0.9",         "--seed",   "7",  "--batch",   "3"};
  const std::string texts = with("generate", 1, greedy), samples = with("generate", 1, sampled);
  EXPECT_EQ(count(texts, "\n"), 5u) << "a line for each, the empty one as well: " << texts;
  EXPECT_EQ(count(samples, "\n"), 10u) << samples;
  EXPECT_EQ(count(samples, "\"sample\":1"), 5u);
  for (const auto& [ranks, layout] : layouts_of_generate) {
    SCOPED_TRACE(fmt::format("{} ranks {}", ranks, layout.empty() ? "" : layout[0]));
    EXPECT_EQ(with("generate", ranks, joined(greedy, layout)), texts);
    if (ranks == 4) {
      EXPECT_EQ(with("generate", ranks, joined(sampled, layout)), samples);
    }
  }
}

TEST_F(Generate, PromptsComeFromWhereTheyAreSaidToBe) {
  const Args more{"--tokens", "12", "--temperature", "0"};
  const std::string said = with("generate", 1, joined({"--prompt", "The model"}, more));
  EXPECT_TRUE(said.starts_with("The model") && said.ends_with("\n")) << said;
  write_file(*scratch_ / "prompt", "The model\n");
  EXPECT_EQ(with("generate", 1, joined({"--prompt", "-"}, more), "exec < prompt"), said);
  const std::string added = said.substr(9, said.size() - 10);
  const std::string line =
      nlohmann::ordered_json({{"prompt", "The model"}, {"sample", 0}, {"text", added}}).dump() + "\n";
  EXPECT_EQ(with("generate", 1, joined({"--prompts", "-"}, more), "exec < prompt"), line);
  write_file(*scratch_ / "prompts.jsonl", "{\"prompt\": \"The model\", \"id\": 3}\n");
  EXPECT_EQ(with("generate", 1, joined({"--prompts", "prompts.jsonl"}, more)), line);
  EXPECT_EQ(with("generate", 1, joined({"--prompt", "The model", "--samples", "2"}, more)),
            said + "---------------\n" + said);
  EXPECT_EQ(with("generate", 1, joined({"--prompt", "The model", "--stop", added.substr(4, 2)}, more)),
            "The model" + added.substr(0, added.find(added.substr(4, 2))) + "\n");
  const auto refused = [&](const Args& args) {
    return run(megalith(joined({"generate", "--checkpoint", "run"}, args)), scratch_->folder()).err;
  };
  write_file(*scratch_ / "bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  EXPECT_NE(refused({"--prompts", "bad.jsonl"}).find("bad.jsonl:2: expected {\"prompt\": TEXT}"), std::string::npos);
  write_file(*scratch_ / "bad.jsonl", "{\"prompt\": \"a\"}\n\n");
  EXPECT_NE(refused({"--prompts", "bad.jsonl"}).find("bad.jsonl:2: an empty line"), std::string::npos);
  EXPECT_NE(refused({"--prompts", "x", "--prompt", "y"}).find("give one of them"), std::string::npos);
  EXPECT_NE(refused({"--top-p", "1.5"}).find("--top-p 1.5"), std::string::npos);
}

// As in prepare, with the same words.
TEST_F(Generate, SpecialTokensInTextsAreWhatTheOptionSays) {
  const std::string prompt = "The model<|endoftext|>";
  const Args more{"--prompt", prompt, "--tokens", "12", "--temperature", "0"};
  EXPECT_EQ(with("generate", 1, joined({"--special-tokens", "ids"}, more)), with("generate", 1, more));
  EXPECT_TRUE(with("generate", 1, joined({"--special-tokens", "text"}, more)).starts_with(prompt));
  write_file(*scratch_ / "special.jsonl", "{\"text\": \"in <|endoftext|> and out\"}\n");
  const Args questions{"--choices", "special.jsonl"};
  EXPECT_NE(with("evaluate", 1, joined({"--special-tokens", "text"}, questions)), with("evaluate", 1, questions));
  const auto refused = [&](const std::string& command, const std::string& word, const Args& args) {
    const Result result =
        run(megalith(joined({command, "--checkpoint", "run", "--special-tokens", word}, args)), scratch_->folder());
    EXPECT_EQ(result.status, 1) << result.text();
    return result.err;
  };
  const std::string one = refused("generate", "refuse", more), other = refused("evaluate", "refuse", questions);
  EXPECT_NE(one.find("the prompt has the special token <|endoftext|> written in the text, after byte 9"),
            std::string::npos)
      << one;
  EXPECT_NE(other.find("special.jsonl:1 has the special token <|endoftext|>"), std::string::npos) << other;
  const std::string nothing = refused("evaluate", "text", {"--data", "data/validation.bin"});
  EXPECT_NE(nothing.find("--data holds tokens"), std::string::npos) << nothing;
}

struct Items {
  std::vector<double> log_likelihoods;
  std::string rest;
};
Items items_of(const std::string& path) {
  Items items;
  const std::string text = read_file(path);
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    nlohmann::json line = nlohmann::json::parse(text.substr(at, text.find('\n', at) - at));
    for (double v : line.at("log_likelihood")) items.log_likelihoods.push_back(v);
    line.erase("log_likelihood");
    items.rest += line.dump() + "\n";
  }
  return items;
}

TEST_F(Generate, ScoresAreTheSameInEveryLayout) {
  const Args data{"--data", "data/validation.bin"}, choices{"--choices", "questions.jsonl", "--items", "items.jsonl"};
  const auto loss_of = [](const std::string& out) {
    double loss = 0;
    EXPECT_EQ(std::sscanf(out.c_str(), "loss %lf nats", &loss), 1) << out;
    return loss;
  };
  const double loss = loss_of(with("evaluate", 1, data));
  const std::string scores = with("evaluate", 1, choices);
  EXPECT_EQ(count(scores, "acc "), 2u) << scores;
  const Items items = items_of(*scratch_ / "items.jsonl");
  ASSERT_EQ(items.log_likelihoods.size(), 7u);
  for (const auto& [ranks, layout] :
       {std::pair{4, Args{"parallel.tensor_parallel_degree=2", "parallel.sequence_parallel=true"}},
        {3, Args{"parallel.pipeline_parallel_degree=3"}},
        {4, Args{"parallel.pipeline_parallel_degree=2", "memory.lm_head_chunks=3"}}}) {
    SCOPED_TRACE(fmt::format("{} ranks {}", ranks, layout[0]));
    EXPECT_NEAR(loss_of(with("evaluate", ranks, joined(data, layout))), loss, 1e-5);
    with("evaluate", ranks, joined(choices, layout));
    const Items found = items_of(*scratch_ / "items.jsonl");
    EXPECT_EQ(found.rest, items.rest);
    ASSERT_EQ(found.log_likelihoods.size(), items.log_likelihoods.size());
    for (size_t i = 0; i < items.log_likelihoods.size(); i++)
      EXPECT_NEAR(found.log_likelihoods[i], items.log_likelihoods[i], 1e-4) << i;
  }
}

TEST_F(Generate, TransformersAgrees) {
  const std::string python = python_with("transformers, torch");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON does not name a Python with transformers";
  succeed(megalith({"checkpoint", "export", "run", "--out", "export"}), *scratch_);
  write_file(*scratch_ / "text",
             with("generate", 1, {"--prompt", "The model", "--tokens", "35", "--temperature", "0"}));
  write_file(*scratch_ / "scores", with("evaluate", 1, {"--choices", "questions.jsonl", "--items", "items.jsonl"}));
  const Result result = run({python, MEGALITH_SOURCE_DIR "/tests/end_to_end/transformers_agrees.py", "export",
                             "data/tokenizer", "The model", "text", "questions.jsonl", "items.jsonl", "scores"},
                            scratch_->folder());
  EXPECT_EQ(result.status, 0) << result.text();
}

}  // namespace
}  // namespace megalith::e2e
