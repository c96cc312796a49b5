// A user does these from day to day with a run's folder, its tokens and its tokenizer; each is done, or refused by a
// sentence, and never something else without a word.
#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

const std::string tiny_config =
    "# written by hand\n[model]\nlayers = 1\nhidden = 16\nheads = 2\ncontext = 16\n"
    "[data]\ntrain = \"run/data\"\nvalidation = \"run/data\"\n[batch]\nglobal_batch_size = 2\nmicrobatch_size = 2\n"
    "[optimizer]\ndecay = \"constant\"\n[train]\nsteps = 2\n[run]\noutput = \"run\"\n";

class DailyUse : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    std::string text;
    for (int i = 0; i < 200; i++) text += fmt::format("line {} of {}\n", i, i * i);
    write_file(*scratch_ / "text.txt", text);
    write_file(*scratch_ / "c.toml", tiny_config);
    for (const auto& [tokenizer, out] : {std::pair{"bytes", "run/data"}, std::pair{"train:300", "other"}})
      succeed(
          megalith({"prepare", "--text", "text.txt", "--tokenizer", tokenizer, "--validation", "0.1", "--out", out}),
          *scratch_);
    succeed(megalith({"train", "c.toml"}), *scratch_);
    succeed(megalith({"train", "c.toml", "run.output=second", "train.seed=2"}), *scratch_);
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string told(const Args& args, const std::string& before = "") {
    const Result result = run(megalith(args), scratch_->folder(), 60, before);
    EXPECT_EQ(result.status, 0) << result.text();
    return result.out + result.err;
  }
  static void expect_refusal(const Args& args, const Args& words, const std::string& before = "") {
    const Result result = run(megalith(args), scratch_->folder(), 60, before);
    EXPECT_EQ(result.status, 1) << result.text();
    for (const std::string& word : words) EXPECT_EQ(count(result.err, word), 1u) << word << ": " << result.text();
  }

  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> DailyUse::scratch_;

TEST_F(DailyUse, AFolderThatHasMovedGoesOn) {
  fs::copy(*scratch_ / "run", *scratch_ / "kept", fs::copy_options::recursive);
  fs::rename(*scratch_ / "run", *scratch_ / "moved");
  int64_t steps = 2;
  for (const char* argument : {"moved", "moved/config.toml"}) {
    const std::string out = told({"train", argument, fmt::format("train.steps={}", ++steps)});
    EXPECT_EQ(count(out, fmt::format("resumed after step {}\n", steps - 1)), 1u) << out;
    EXPECT_EQ(count(out, "data.train moved/data: "), 1u) << "it has moved as a whole: " << out;
  }
  EXPECT_FALSE(fs::exists(*scratch_ / "run")) << "nothing begins where it was";
  EXPECT_EQ(read_steps(*scratch_ / "moved").size(), 4u);
  fs::rename(*scratch_ / "kept", *scratch_ / "run");
}

TEST_F(DailyUse, TheConfigThatWasReadIsKept) {
  fs::create_directory(*scratch_ / "mine");
  write_file(*scratch_ / "mine/config.toml", tiny_config);
  told({"train", "mine/config.toml", "run.output=mine"});
  EXPECT_EQ(read_file(*scratch_ / "mine/config.earlier-1.toml"), tiny_config);
  told({"train", "mine"});
  EXPECT_FALSE(fs::exists(*scratch_ / "mine/config.earlier-2.toml"));
}

TEST_F(DailyUse, EveryTargetIsScored) {
  const std::string c = MEGALITH_SOURCE_DIR "/../shared/cases/eval-tail";
  if (!fs::exists(c)) GTEST_SKIP() << "no case at " << c;
  succeed(megalith({"prepare", "--text", c + "/text.txt", "--tokenizer", "bytes", "--out", "tail"}), *scratch_);
  const Args command{"evaluate", "--checkpoint", c + "/model", "--data", "tail/validation.bin"};
  const std::string whole = "loss 5.6889", of = " nats a token over 40 tokens, perplexity 295.";
  const auto is_right = [&](const std::string& out) { return out.starts_with(whole) && count(out, of) == 1; };
  EXPECT_PRED1(is_right, told(command));
  Args split = command;
  split.push_back("parallel.tensor_parallel_degree=2");
  EXPECT_PRED1(is_right, succeed(mpirun(2, split), *scratch_).out);
  Args first = command;
  first.insert(first.end(), {"--sequences", "1"});
  EXPECT_EQ(count(told(first), "over 32 tokens, perplexity "), 1u);
  EXPECT_EQ(count(told(first), "; the first 1 of 2 windows"), 1u);
}

TEST_F(DailyUse, TokensOfAnotherTokenizerAreRefused) {
  const Args words{"was trained with another tokenizer", "its model would misread the text"};
  expect_refusal({"evaluate", "--checkpoint", "run", "--data", "other/validation.bin"}, words);
  expect_refusal({"train", "c.toml", "run.output=new", "data.validation=other"},
                 {"data.validation: other was prepared with the tokenizer in other/tokenizer"});
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "train:258", "--out", "near"}), *scratch_);
  told({"train", "c.toml", "run.output=wide", "model.vocab=258"});
  expect_refusal({"train", "c.toml", "run.output=new", "checkpoint.init_from=wide", "data.train=near",
                  "data.validation=", "model.vocab=258"},
                 words);
  expect_refusal({"generate", "--checkpoint", "wide", "--tokenizer", "near/tokenizer"}, words);
  expect_refusal({"checkpoint", "export", "wide", "--out", "new", "--tokenizer", "near/tokenizer"},
                 {"was trained with another tokenizer", "than --tokenizer near/tokenizer", "leave --tokenizer out"});
  EXPECT_FALSE(fs::exists(*scratch_ / "new"));
  told({"checkpoint", "export", "wide", "--out", "named", "--tokenizer", "run/data/tokenizer"});
  // The same tokenizer in the files of an export is the same.
  told({"checkpoint", "export", "run", "--out", "export"});
  told({"evaluate", "--checkpoint", "export", "--data", "run/data/validation.bin"});
  told({"train", "c.toml", "run.output=from_export", "checkpoint.init_from=export"});
}

TEST_F(DailyUse, AnotherInitFromIsSaid) {
  const auto said = [](const std::string& from, const std::string& steps) {
    return told({"train", "c.toml", "run.output=from", "checkpoint.init_from=" + from, "train.steps=" + steps});
  };
  EXPECT_EQ(count(said("run", "1"), "weights from run"), 1u);
  EXPECT_EQ(count(said("run", "2"), "has no effect"), 0u);
  for (const char* steps : {"3", "4"})
    EXPECT_EQ(count(said("second", steps),
                    "warning: checkpoint.init_from = second has no effect: the run continues from "
                    "from/checkpoints/step-0000000"),
              1u);
}

TEST_F(DailyUse, WhatIsHeldOutIsNotTrainedOn) {
  expect_refusal({"train", "c.toml", "run.output=new", "data.train=run/data/*.bin"},
                 {"data.train contains run/data/validation.bin, a file of data.validation = run/data"});
  const std::string same = "data.validation=run/data/train.bin";
  expect_refusal({"train", "c.toml", "run.output=new", same},
                 {"a file of data.validation", "data.allow_overlap = true"});
  const std::string out = told({"train", "c.toml", "run.output=same", same, "data.allow_overlap=true"});
  EXPECT_EQ(count(out, "warning: data.train has files of data.validation"), 1u) << out;
  EXPECT_EQ(count(out, "an epoch leaves out "), 1u) << out;
}

TEST_F(DailyUse, DocumentsAreCounted) {
  const std::string out = told({"train", "c.toml", "run.output=apart", "data.isolate_documents=true"});
  EXPECT_EQ(count(out, "data.isolate_documents: 0 documents begin within the first "), 1u) << out;
  EXPECT_EQ(count(out, "warning: data.isolate_documents = true finds no documents"), 1u) << out;
}

TEST_F(DailyUse, NumbersOfThreadsAndLimitsAreChecked) {
  for (const char* threads : {"100000", "1025", "0", "-1", "abc", "2x", ""})
    expect_refusal({"train", "c.toml"}, {"is not a number of threads from 1 to 1024"},
                   fmt::format("export OMP_NUM_THREADS='{}'", threads));
  for (const char* threads : {"1", " 2 ", "2,1"})
    told({"plan", "c.toml", "--ranks", "1"}, fmt::format("export OMP_NUM_THREADS='{}'", threads));
  expect_refusal({"train", "c.toml"}, {"ulimit -n"}, "ulimit -n 8");
  expect_refusal({"train", "c.toml"}, {"ulimit -s"}, "ulimit -s 64");
}

// The line is named for which memory is missing, and no line is left out as a bad one.
TEST_F(DailyUse, ALineThatDoesNotFitIntoMemoryIsNamed) {
  const std::string first = "{\"text\": \"hi\"}\n", begin = R"({"messages": [{"role": "user", "content": "hi)",
                    end = R"("}, {"role": "assistant", "content": "ok"}]})" + std::string("\n");
  write_file(*scratch_ / "texts.jsonl", first + "{\"text\": \"" + std::string(60'000'000, 'a') + "\"}\n");
  write_file(*scratch_ / "chats.jsonl", begin + end + begin + std::string(15'000'000, 'a') + end);
  for (const auto& [name, template_name, place] :
       {std::tuple{"texts.jsonl", "", 15}, {"chats.jsonl", "--template=chatml", 90}})
    for (const char* kib : {"600000", "400000", "300000"}) {
      SCOPED_TRACE(fmt::format("{} with {} KiB", name, kib));
      Args args{"prepare",     "--text", name,          "--out",       "of_long_lines",
                "--tokenizer", "bytes",  "--threads=1", "--skip-bad=9"};
      if (*template_name) args.emplace_back(template_name);
      expect_refusal(args, {fmt::format("{}, line 2 (at byte {}) does not fit into memory", name, place), "ulimit -v"},
                     std::string("ulimit -v ") + kib);
    }
}

// As under mpirun, which binds ranks to cores.
TEST_F(DailyUse, ThreadsThatShareACoreAreSaidOnce) {
  const std::string on_one_core = "taskset -cp $(taskset -cp $$ | grep -o '[0-9]*$') $$";
  const std::string warning = "warning: OMP_NUM_THREADS = 2, but each rank may run on 1 core only";
  const std::string out = told({"train", "c.toml", "run.output=crowded"}, on_one_core + "; export OMP_NUM_THREADS=2");
  EXPECT_EQ(count(out, warning), 1u) << out;
  EXPECT_EQ(count(told({"train", "c.toml", "run.output=one"}, on_one_core), "threads take turns"), 0u);
}

}  // namespace
}  // namespace megalith::e2e
