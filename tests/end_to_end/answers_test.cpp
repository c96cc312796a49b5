// Training on answers only, against independent references in float64 (../shared/sft): the loss is the mean over the
// tokens of a step that count, in every layout, with examples packed or each in a sequence of its own.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/end_to_end/helpers.h"
#include "tests/end_to_end/layout.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

std::string answers_reference() { return place("MEGALITH_SFT", MEGALITH_SOURCE_DIR "/../shared/sft"); }

#define SKIP_WITHOUT_SFT() \
  if (!std::filesystem::exists(answers_reference())) GTEST_SKIP() << "no reference at " << answers_reference()

const std::vector<std::string> chat_templates{"chatml", "llama3", "mistral", "zephyr", "plain"};

nlohmann::json answers_report() { return nlohmann::json::parse(read_file(answers_reference() + "/loss.json")); }
nlohmann::json answers_report_of(const std::string& name) { return answers_report().at("templates").at(name); }

// The first rows of the reference, both of its files, as conversations in one.
void write_conversations(const Scratch& scratch, size_t rows) {
  std::string lines;
  size_t written = 0;
  for (const char* file : {"conversations", "pairs"}) {
    std::ifstream in(fmt::format("{}/{}.jsonl", answers_reference(), file));
    for (std::string line; std::getline(in, line) && written < rows; written++) {
      const auto row = nlohmann::json::parse(line);
      if (row.contains("messages")) {
        lines += line + "\n";
        continue;
      }
      const nlohmann::json messages{{{"role", "user"}, {"content", row.at("prompt")}},
                                    {{"role", "assistant"}, {"content", row.at("completion")}}};
      lines += nlohmann::json{{"messages", messages}}.dump() + "\n";
    }
  }
  write_file(scratch / "rows.jsonl", lines);
}

void prepare_rows(const Scratch& scratch, const std::string& name, size_t rows = 60, const Args& more = {}) {
  write_conversations(scratch, rows);
  Args args{
      "prepare",      "--text", "rows.jsonl", "--template", name, "--tokenizer", answers_reference() + "/tokenizer",
      "--validation", "0",      "--out",      name};
  args.insert(args.end(), more.begin(), more.end());
  succeed(megalith(args), scratch);
}

// The recipe of the reference, whose step takes 8 rows in order, 2 a microbatch.
void write_answers_config(const Scratch& scratch, const std::string& name) {
  const nlohmann::json r = answers_report().at("recipe"),
                       model = nlohmann::json::parse(read_file(answers_reference() + "/model/config.json"));
  const auto x = [&](const char* key) { return fmt::format("{:e}", r.at(key).get<double>()); };
  write_file(scratch / "config.toml",
             fmt::format("[model]\nlayers = {}\nhidden = {}\nheads = {}\nvocab = {}\ncontext = {}\n"
                         "[data]\ntrain = \"{}\"\nshuffle = false\npack = false\n"
                         "[batch]\nsequence_length = {}\nglobal_batch_size = {}\nmicrobatch_size = {}\n"
                         "[precision]\ncompute = \"fp32\"\n"
                         "[optimizer]\nlearning_rate = {}\nmin_learning_rate = {}\nwarmup_steps = {}\n"
                         "decay = \"cosine\"\ndecay_steps = {}\nbeta1 = {}\nbeta2 = {}\nepsilon = {}\n"
                         "weight_decay = {}\ngradient_clip = {}\n"
                         "[train]\nlog_every = 1\nsteps = {}\n[checkpoint]\ninit_from = \"{}/model\"\n"
                         "[run]\noutput = \"run\"\n",
                         model.at("n_layer").get<int>(), model.at("n_embd").get<int>(), model.at("n_head").get<int>(),
                         r.at("vocab").get<int>(), r.at("context").get<int>(), name, r.at("context").get<int>(),
                         r.at("batch").get<int>() * r.at("accum").get<int>(), r.at("batch").get<int>(), x("lr"),
                         x("min_lr"), r.at("warmup").get<int>(), r.at("decay_steps").get<int>(), x("beta1"), x("beta2"),
                         x("eps"), x("weight_decay"), x("clip"), r.at("steps").get<int>(), answers_reference()));
}

Course answers_course(const std::string& name, size_t steps) {
  Course course;
  course.steps = steps_of(answers_report_of(name));
  course.steps.resize(std::min(course.steps.size(), steps));
  return course;
}

int64_t sequences_in(const std::string& log) {
  const size_t at = log.find(" in "), examples = log.find(" examples in ");
  return at == std::string::npos || examples == std::string::npos
             ? 0
             : std::stoll(log.substr(examples + std::string(" examples in ").size()));
}

TEST(Answers, TakeTheCourseOfTheReferenceUnderEveryTemplate) {
  SKIP_WITHOUT_SFT();
  for (const std::string& name : chat_templates) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    prepare_rows(scratch, name);
    write_answers_config(scratch, name);
    train(scratch.folder(), 1, {});
    const nlohmann::json steps = answers_report_of(name).at("steps");
    fmt::print("  {}: {}\n", name,
               expect_same_course({read_steps(scratch / "run"), {}}, answers_course(name, steps.size())));
    size_t step = 0;
    for (const nlohmann::json& line : read_metrics(scratch / "run")) {
      int64_t counted = 0;
      for (const auto& of_microbatch : steps.at(step++).at("counted")) counted += of_microbatch.get<int64_t>();
      EXPECT_EQ(line.at("counted_tokens"), counted) << step;
    }
  }
}

const std::map<int, std::vector<std::string>>& answers_layouts() {
  static const std::map<int, std::vector<std::string>> all{
      {1, {"microbatch=1 recompute", "microbatch=8 recompute=selective"}},
      {2,
       {"full_shard microbatch=1", "tensor=2", "tensor=2 sequence recompute=selective", "pipeline=2 microbatch=1",
        "pipeline=2 gpipe microbatch=1"}},
      {4,
       {"shard_optimizer shard=2 recompute microbatch=1", "tensor=2 sequence pipeline=2 recompute microbatch=1",
        "tensor=4 sequence", "shard_grad_op microbatch=2"}},
      {8,
       {"tensor=2 pipeline=2 shard_grad_op microbatch=1", "tensor=2 sequence full_shard shard=2 recompute=selective",
        "full_shard shard=4 recompute offload_optimizer=1 offload_parameters microbatch=1"}}};
  return all;
}

TEST(Answers, TakeTheCourseOfTheReferenceInEveryLayout) {
  SKIP_WITHOUT_SFT();
  const Scratch scratch;
  prepare_rows(scratch, "chatml");
  write_answers_config(scratch, "chatml");
  const auto most = static_cast<size_t>(taken("Answers.layouts"));
  const Course expected = answers_course("chatml", 7);
  int run = 0;
  for (const auto& [ranks, of_ranks] : answers_layouts()) {
    std::vector<Training> trainings;
    for (const std::string& words : of_ranks)
      if (trainings.size() < most) trainings.push_back({fmt::format("run{}", run++), words, {}});
    train_several(scratch, ranks, trainings);
    for (const Training& t : trainings) {
      SCOPED_TRACE(fmt::format("{} ranks: {}", ranks, t.words));
      fmt::print("  {} on {}: {}\n", t.words, ranks, expect_same_course({read_steps(scratch / t.name), {}}, expected));
    }
  }
}

// Rows 0 to 7 in as few sequences as best fit makes: their loss and norm are those of one row a sequence.
TEST(Answers, PackedHaveTheSameLossInEveryLayout) {
  SKIP_WITHOUT_SFT();
  const auto most = static_cast<size_t>(taken("Answers.layouts"));
  for (const std::string& name : chat_templates) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    prepare_rows(scratch, name, 8);
    write_answers_config(scratch, name);
    const Args packed{"data.pack=true", "train.steps=1"};
    Args all_at_once = packed;
    all_at_once.insert(all_at_once.end(), {"batch.global_batch_size=1", "batch.microbatch_size=1"});
    const int64_t sequences = sequences_in(train(scratch.folder(), 1, all_at_once).text());
    ASSERT_GT(sequences, 0);
    ASSERT_LT(sequences, 8) << "best fit puts several rows into one sequence";
    const nlohmann::json of_template = answers_report_of(name);
    Course expected = answers_course(name, 1);
    EXPECT_NEAR(expected.steps[0].loss, of_template.at("packed").at("loss").get<double>(), 1e-12);
    int run = 0;
    for (const auto& [ranks, of_ranks] : answers_layouts()) {
      if (name != "chatml" && ranks > 1) continue;
      std::vector<Training> trainings;
      for (const std::string& words : of_ranks) {
        if (trainings.size() >= most) break;
        Args overrides = packed;
        overrides.push_back(fmt::format("batch.global_batch_size={}", sequences));
        overrides.push_back("batch.microbatch_size=1");
        trainings.push_back({fmt::format("packed{}", run++), words, overrides});
      }
      train_several(scratch, ranks, trainings);
      for (const Training& t : trainings) {
        SCOPED_TRACE(fmt::format("{} ranks: {}", ranks, t.words));
        fmt::print("  {} on {}, {} sequences: {}\n", t.words, ranks, sequences,
                   expect_same_course({read_steps(scratch / t.name), {}}, expected));
      }
    }
  }
}

TEST(Answers, AResumedRunHasTheSameBits) {
  SKIP_WITHOUT_SFT();
  const Scratch scratch;
  prepare_rows(scratch, "chatml");
  write_answers_config(scratch, "chatml");
  const Args packed{"data.pack=true",    "data.shuffle=true", "batch.global_batch_size=4",
                    "model.dropout=0.1", "train.steps=6",     "optimizer.decay_steps=6"};
  const auto with = [&](const Args& more) {
    Args all = packed;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  train(scratch.folder(), 2, with({"run.output=whole"}));
  train(scratch.folder(), 2, with({"run.output=halves", "train.steps=3"}));
  train(scratch.folder(), 2, with({"run.output=halves"}));
  EXPECT_EQ(read_steps(scratch / "whole"), read_steps(scratch / "halves"));
  expect_same_rank_files(scratch / ("whole/checkpoints/" + step_name(6)),
                         scratch / ("halves/checkpoints/" + step_name(6)));
  // What counts belongs to the data, and how examples lie in sequences to the settings.
  const Result other =
      run(mpirun(2, {"train", "config.toml", "run.output=halves", "data.pack=false", "train.steps=7",
                     "data.shuffle=true", "batch.global_batch_size=4", "model.dropout=0.1", "optimizer.decay_steps=6"}),
          scratch.folder());
  EXPECT_NE(other.status, 0);
  EXPECT_NE(other.text().find("data.pack: true there, false here"), std::string::npos) << other.text();
}

// The held-out loss is a mean over the tokens that count, and so is that of `evaluate`.
TEST(Answers, EvaluationsCountWhatCounts) {
  SKIP_WITHOUT_SFT();
  const Scratch scratch;
  prepare_rows(scratch, "chatml");
  write_answers_config(scratch, "chatml");
  const nlohmann::json rows = answers_report_of("chatml").at("rows");
  double sum = 0, counted = 0;
  for (const auto& row : rows) {
    sum += row.at("sum").get<double>();
    counted += row.at("counted").get<double>();
  }
  for (const std::string pack : {"true", "false"}) {
    train(scratch.folder(), 2,
          {"data.pack=" + pack, "data.validation=chatml/train.bin", "data.allow_overlap=true", "train.steps=1",
           "optimizer.learning_rate=1e-300", "optimizer.min_learning_rate=0", "train.evaluate_every=1",
           "run.output=pack_" + pack});
    const nlohmann::json last = read_metrics(scratch / ("pack_" + pack)).back();
    EXPECT_NEAR(last.at("validation_loss").get<double>(), sum / counted, 1e-5) << pack;
  }
  const Result result =
      succeed(megalith({"evaluate", "--checkpoint", "pack_true", "--data", "chatml/train.bin"}), scratch);
  ASSERT_EQ(result.out.find("loss "), 0u) << result.out;
  EXPECT_NEAR(std::stod(result.out.substr(5)), sum / counted, 1e-5) << result.out;
  EXPECT_NE(result.out.find(fmt::format("{:.0f} tokens", counted)), std::string::npos) << result.out;
}

TEST(Answers, AStepWhereNothingCountsIsSkipped) {
  SKIP_WITHOUT_SFT();
  const Scratch scratch;
  prepare_rows(scratch, "chatml", 4);  // rows 2 and 3 count nothing
  write_answers_config(scratch, "chatml");
  for (const int ranks : {1, 2}) {
    const std::string out = fmt::format("on-{}", ranks);
    const Result result = train(scratch.folder(), ranks,
                                {"batch.global_batch_size=2", "train.steps=2", "checkpoint.every=1",
                                 "optimizer.weight_decay=0.5", "run.output=" + out});
    EXPECT_NE(result.text().find("step 2 is skipped, 1 in all: no token of samples"), std::string::npos)
        << result.text();
    const std::vector<nlohmann::json> lines = read_metrics(scratch / out);
    EXPECT_TRUE(lines.back().at("loss").is_null()) << lines.back();
    EXPECT_EQ(lines.back().at("skipped"), "no token counts");
    const std::string folder = out + "/checkpoints/step-0000000";
    const std::string diff = run(megalith({"checkpoint", "diff", folder + "1", folder + "2"}), scratch.folder()).out;
    EXPECT_NE(diff.find("and 0 of "), std::string::npos) << "no weight and no moment moves: " << diff;
  }
}

// A mean over nothing is no 0: not of a set to train on, nor of one to evaluate on, nor of its first sequences.
TEST(Answers, ASetWithoutATokenThatCountsIsRefused) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 40; i++)
    lines += fmt::format(
        "{{\"messages\":[{{\"role\":\"user\",\"content\":\"q{0}\"}},"
        "{{\"role\":\"assistant\",\"content\":\"a{0}\"}}]}}\n",
        i);
  write_file(scratch / "c.jsonl", lines);
  succeed(megalith({"prepare", "--text", "c.jsonl", "--template", "plain", "--tokenizer", "bytes", "--validation",
                    "0.2", "--out", "data"}),
          scratch);
  std::filesystem::copy(scratch / "data", scratch / "none");
  std::filesystem::copy(scratch / "data/tokenizer", scratch / "none/tokenizer");
  for (const char* part : {"train", "validation"}) {
    const std::string mask = scratch / fmt::format("none/{}.mask", part);
    write_file(mask, std::string(std::filesystem::file_size(mask), '\0'));
  }
  write_file(scratch / "c.toml", "[model]\nlayers = 1\nhidden = 16\nheads = 2\ncontext = 96\n[train]\nsteps = 1\n");
  expect_refused(megalith({"train", "c.toml", "data.train=none"}), scratch,
                 {"data.train = none", "counts in the loss"});
  expect_refused(megalith({"train", "c.toml", "data.train=data", "data.validation=none/validation.bin"}), scratch,
                 {"data.validation = none/validation.bin", "counts in the loss"});
}

TEST(Answers, WhatCannotBeTrainedOnIsRefused) {
  SKIP_WITHOUT_SFT();
  const Scratch scratch;
  prepare_rows(scratch, "chatml");
  write_answers_config(scratch, "chatml");
  expect_refused(megalith({"train", "config.toml", "batch.sequence_length=32"}), scratch,
                 {"examples of more than 33 tokens", "--sequence-length 32"});
  std::filesystem::resize_file(scratch / "chatml/train.mask", 100);
  expect_refused(megalith({"train", "config.toml"}), scratch, {"train.mask has 100 bytes", "prepare the text again"});
}

}  // namespace
}  // namespace megalith::e2e
