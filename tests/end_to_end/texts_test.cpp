// `evaluate --text`: a text is scored as its tokens are that `prepare` makes of it.
#include <fmt/format.h>

#include <cmath>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

const std::string config_of_texts =
    "[model]\nlayers = 2\nhidden = 32\nheads = 4\ncontext = 48\n"
    "[data]\ntrain = \"data/train.bin\"\n"
    "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 4\n"
    "[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 5\n"
    "[train]\nsteps = 12\n[run]\noutput = \"run\"\n";

struct Score {
  double loss = 0, bits = 0, perplexity = 0;
  long long tokens = 0;
};
Score score_in(const std::string& line) {
  Score s;
  EXPECT_EQ(std::sscanf(line.c_str(), "loss %lf nats a token over %lld tokens, %lf bits per byte, perplexity %lf",
                        &s.loss, &s.tokens, &s.bits, &s.perplexity),
            4)
      << line;
  return s;
}

class EvaluatedTexts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    write_file(*scratch_ / "text.txt", read_file(MEGALITH_SOURCE_DIR "/configs/README.md"));
    write_file(*scratch_ / "other.txt", "First.<|endoftext|>Second: caf\u00e9, \u65e5\u672c\u8a9e.\n" +
                                            read_file(MEGALITH_SOURCE_DIR "/docker/README.md"));
    write_file(*scratch_ / "lines.jsonl", "{\"text\": \"A line is a document.\"}\n{\"text\": \"And so is this.\"}\n");
    write_file(*scratch_ / "config.toml", config_of_texts);
    succeed(
        megalith({"prepare", "--text", "text.txt", "--tokenizer", "train:300", "--out", "data", "--validation", "0"}),
        *scratch_);
    train(scratch_->folder(), 1, {});
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string evaluate(const Args& more, int ranks = 1, const std::string& model = "run") {
    Args args{"evaluate", "--checkpoint", model};
    args.insert(args.end(), more.begin(), more.end());
    return succeed(ranks == 1 ? megalith(args) : mpirun(ranks, args), *scratch_).out;
  }
  static std::string refused(const Args& more) {
    Args args{"evaluate", "--checkpoint", "run"};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = run(megalith(args), scratch_->folder());
    EXPECT_EQ(result.status, 1) << result.text();
    return result.err;
  }
  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> EvaluatedTexts::scratch_;

TEST_F(EvaluatedTexts, AreScoredAsTheTokensThatPrepareMakes) {
  for (const std::string text : {"text.txt", "other.txt", "lines.jsonl"}) {
    SCOPED_TRACE(text);
    succeed(megalith({"prepare", "--text", text, "--tokenizer", "data/tokenizer", "--out", "of-" + text, "--validation",
                      "0"}),
            *scratch_);
    const std::string prepared = evaluate({"--data", "of-" + text + "/train.bin"});
    EXPECT_EQ(evaluate({"--text", text}), prepared);
    const Score s = score_in(prepared);
    EXPECT_NEAR(s.perplexity, std::exp(s.loss), 1e-3);
    EXPECT_GT(s.loss, 1);
  }
  EXPECT_EQ(evaluate({"--text", "text.txt", "--sequence-length", "20", "--sequences", "3"}),
            evaluate({"--data", "of-text.txt/train.bin", "--sequence-length", "20", "--sequences", "3"}));
}

TEST_F(EvaluatedTexts, SeveralAreScoredEachAndTogetherOnAnyNumberOfRanks) {
  const std::string all = evaluate({"--text", "text.txt", "other.txt"});
  ASSERT_EQ(count(all, "\n"), 3u) << all;
  const size_t second = all.find('\n') + 1, third = all.find('\n', second) + 1;
  const Score a = score_in(all), b = score_in(all.substr(second)), both = score_in(all.substr(third));
  const auto name_of = [&](size_t begin) {
    const size_t end = all.find('\n', begin);
    return all.substr(all.rfind(": ", end) + 2, end - all.rfind(": ", end) - 2);
  };
  EXPECT_EQ(name_of(0) + " " + name_of(second) + " " + name_of(third), "text.txt other.txt 2 texts");
  EXPECT_EQ(both.tokens, a.tokens + b.tokens);
  const double sum = a.loss * static_cast<double>(a.tokens) + b.loss * static_cast<double>(b.tokens);
  EXPECT_NEAR(both.loss, sum / static_cast<double>(both.tokens), 1e-7);
  EXPECT_NEAR(score_in(evaluate({"--text", "other.txt"})).loss, b.loss, 1e-7);
  for (const Args& layout :
       {Args{}, Args{"parallel.tensor_parallel_degree=2"}, Args{"parallel.pipeline_parallel_degree=2"}}) {
    Args args{"--text", "text.txt", "other.txt"};
    args.insert(args.end(), layout.begin(), layout.end());
    const std::string found = evaluate(args, 2);
    ASSERT_EQ(count(found, "\n"), 3u) << found;
    EXPECT_NEAR(score_in(found).loss, a.loss, 1e-5);
  }
}

TEST_F(EvaluatedTexts, AFolderOfHuggingFaceHasItsTokenizer) {
  succeed(megalith({"checkpoint", "export", "run", "--out", "export"}), *scratch_);
  EXPECT_NEAR(score_in(evaluate({"--text", "text.txt"}, 1, "export")).loss,
              score_in(evaluate({"--text", "text.txt"})).loss, 1e-6);
}

TEST_F(EvaluatedTexts, WhatIsNoTextIsRefusedWithARemedy) {
  write_file(*scratch_ / "latin.txt", "caf\xe9 au lait\n");
  const std::string latin = refused({"--text", "latin.txt"});
  EXPECT_NE(latin.find("latin.txt is not UTF-8 at byte 3 (0xe9)"), std::string::npos) << latin;
  EXPECT_NE(latin.find("iconv -f LATIN1 -t UTF-8 'latin.txt' | megalith evaluate --text -"), std::string::npos)
      << latin;
  write_file(*scratch_ / "nul.txt", std::string("a\0b\n", 4));
  EXPECT_NE(refused({"--text", "nul.txt"}).find("NUL byte at byte 1"), std::string::npos);
  EXPECT_NE(refused({"--text", "none.txt"}).find("none.txt"), std::string::npos);
  EXPECT_NE(refused({"--text", "text.txt", "--data", "data/train.bin"}).find("two of --text, --data and --choices"),
            std::string::npos);
  EXPECT_NE(refused({}).find("nothing to evaluate on"), std::string::npos);
}

}  // namespace
}  // namespace megalith::e2e
