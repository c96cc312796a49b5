// The best checkpoint by validation loss, early stopping and averages of checkpoints, as a user asks for them.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "checkpoints/reader.h"
#include "kernels/system/json.h"
#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// It learns its few training tokens by heart, so that the validation loss soon rises.
const std::string config_of_overfitting =
    "[model]\nlayers = 1\nhidden = 32\nheads = 2\ncontext = 16\n"
    "[data]\ntrain = \"data\"\nvalidation = \"data\"\n[batch]\nglobal_batch_size = 4\nmicrobatch_size = 2\n"
    "[optimizer]\nlearning_rate = 3e-2\ndecay = \"constant\"\n"
    "[train]\nsteps = 60\nevaluate_every = 4\n[checkpoint]\nkeep = 1\nkeep_best = true\nsettle = 0\n";

struct Evaluation {
  int64_t step;
  double loss;
};

std::vector<Evaluation> evaluations_in(const std::string& folder) {
  std::vector<Evaluation> found;
  std::istringstream lines(read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto object = parse_json(line); object.contains("validation_loss"))
      found.push_back({object.at("step"), object.at("validation_loss")});
  return found;
}

Evaluation lowest_of(const std::vector<Evaluation>& all) {
  return *std::ranges::min_element(all, {}, &Evaluation::loss);
}

class Best : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    std::string text;  // random, so that nothing but its letters can be learned for the validation set
    std::mt19937 random(1);
    for (int i = 0; i < 900; i++) text += "abcdefgh"[random() % 8];
    write_file(*scratch_ / "text.txt", text);
    write_file(*scratch_ / "c.toml", config_of_overfitting);
    succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--validation", "0.3", "--out", "data"}),
            *scratch_);
    succeed(megalith({"train", "c.toml", "run.output=whole"}), *scratch_);
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string done(const Args& args) {
    const Result result = run(megalith(args), scratch_->folder(), 60);
    EXPECT_EQ(result.status, 0) << result.text();
    return result.out + result.err;
  }
  static std::string refused(const Args& args) {
    const Result result = run(megalith(args), scratch_->folder(), 60);
    EXPECT_EQ(result.status, 1) << result.text();
    return result.err;
  }
  static std::set<std::string> checkpoints_of(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(*scratch_ / folder + "/checkpoints"))
      if (entry.is_directory()) names.insert(entry.path().filename());
    return names;
  }

  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> Best::scratch_;

TEST_F(Best, TheCheckpointWithTheLowestLossIsKeptAndNamed) {
  const std::vector<Evaluation> all = evaluations_in(*scratch_ / "whole");
  ASSERT_EQ(all.size(), 15u);
  const Evaluation lowest = lowest_of(all);
  ASSERT_LT(lowest.step, 60) << "the test needs a run that overfits";
  ASSERT_GT(lowest.step, all.front().step) << "and one that improves";
  EXPECT_EQ(checkpoints_of("whole"), (std::set<std::string>{step_name(lowest.step), step_name(60)}));
  const std::string best = "whole/checkpoints/" + step_name(lowest.step);
  for (const char* name : {"whole/best", "whole/checkpoints/best"})
    EXPECT_EQ(count(done({"checkpoint", "inspect", name}), best + "\n"), 1u) << name;
  const Args prompt{"--prompt", "line", "--tokens", "8", "--temperature", "0"};
  const auto generated = [&](const std::string& model) {
    Args args{"generate", model};
    args.insert(args.end(), prompt.begin(), prompt.end());
    const Result result = run(megalith(args), scratch_->folder(), 60);
    EXPECT_EQ(result.status, 0) << result.text();
    return result.out;
  };
  EXPECT_EQ(generated("whole/best"), generated(best));
  // A second run begins with these weights, or continues from them.
  EXPECT_EQ(count(done({"train", "c.toml", "run.output=begun", "train.steps=1", "checkpoint.init_from=whole/best"}),
                  "weights from whole/best"),
            1u);
  EXPECT_EQ(count(done({"train", "c.toml", "run.output=branch", "train.steps=24", "checkpoint.resume=whole/best"}),
                  fmt::format("resumed after step {}\n", lowest.step)),
            1u);
  // In the run's own folder the newer checkpoint is in the way.
  const std::string in_the_way = refused({"train", "c.toml", "run.output=whole", "checkpoint.resume=best"});
  EXPECT_EQ(count(in_the_way, "is of step " + std::to_string(lowest.step)), 1u) << in_the_way;
  fs::copy(*scratch_ / "whole", *scratch_ / "back", fs::copy_options::recursive);
  fs::rename(*scratch_ / "back/checkpoints/" + step_name(60), *scratch_ / "moved-away");
  EXPECT_EQ(count(done({"train", "c.toml", "run.output=back", "train.steps=30", "checkpoint.resume=best"}),
                  fmt::format("resumed after step {}\n", lowest.step)),
            1u);
}

TEST_F(Best, ItIsTheSameForARunThatWasStoppedAndStarted) {
  for (const char* steps : {"7", "8", "29", "60"})
    done({"train", "c.toml", "run.output=pieces", fmt::format("train.steps={}", steps), "optimizer.warmup_steps=0"});
  const Evaluation lowest = lowest_of(evaluations_in(*scratch_ / "pieces"));
  EXPECT_EQ(checkpoints_of("pieces"), (std::set<std::string>{step_name(lowest.step), step_name(60)}));
}

TEST_F(Best, TheRunEndsWhenNothingImproves) {
  const std::string out = done({"train", "c.toml", "run.output=early", "train.early_stopping_patience=2"});
  const std::vector<Evaluation> all = evaluations_in(*scratch_ / "early");
  const Evaluation lowest = lowest_of(all);
  EXPECT_EQ(all.back().step, lowest.step + 8);
  EXPECT_LT(all.back().step, 60);
  const std::string said = fmt::format(
      "stopped early, before step 60: the last 2 evaluations did not improve on a validation loss of {:.4f}",
      lowest.loss);
  EXPECT_EQ(count(out, said), 1u) << out;
  EXPECT_EQ(checkpoints_of("early"), (std::set<std::string>{step_name(lowest.step), step_name(all.back().step)}));
  const std::string again = done({"train", "c.toml", "run.output=early", "train.early_stopping_patience=2"});
  EXPECT_EQ(count(again, said), 1u) << again;
  EXPECT_EQ(evaluations_in(*scratch_ / "early").size(), all.size());
  const std::string more = done({"train", "c.toml", "run.output=early", "train.early_stopping_patience=3"});
  EXPECT_EQ(evaluations_in(*scratch_ / "early").back().step, lowest.step + 12) << more;
}

TEST_F(Best, LossesOnOtherDataAreNotCompared) {
  done({"train", "c.toml", "run.output=other", "train.steps=8"});
  write_file(*scratch_ / "hard.txt", std::string(3000, 'x') + "\n\n" + std::string(3000, 'y'));
  done({"prepare", "--text", "hard.txt", "--tokenizer", "bytes", "--validation", "0.3", "--out", "hard"});
  done({"train", "c.toml", "run.output=other", "train.steps=16", "data.validation=hard"});
  const std::vector<Evaluation> all = evaluations_in(*scratch_ / "other");
  ASSERT_EQ(all.size(), 4u);
  ASSERT_GT(std::min(all[2].loss, all[3].loss), all[1].loss) << "the test needs higher losses on the other data";
  const Evaluation lowest = all[2].loss <= all[3].loss ? all[2] : all[3];
  EXPECT_EQ(count(done({"checkpoint", "inspect", "other/best"}), step_name(lowest.step)), 1u);
}

TEST_F(Best, WithoutAnEvaluatedCheckpointThereIsNone) {
  done({"train", "c.toml", "run.output=plain", "train.steps=2", "data.validation=", "train.evaluate_every=0",
        "checkpoint.keep_best=false"});
  const std::string none = refused({"generate", "plain/best", "--prompt", "x"});
  EXPECT_EQ(count(none, "no checkpoint in plain was saved right after an evaluation"), 1u) << none;
  const std::string nowhere = refused({"generate", "nowhere/best", "--prompt", "x"});
  EXPECT_EQ(count(nowhere, "no such folder: nowhere"), 1u) << nowhere;
  for (const auto& [override, key] : {std::pair{"checkpoint.keep_best=true", "checkpoint.keep_best"},
                                      {"train.early_stopping_patience=2", "train.early_stopping_patience"}}) {
    const std::string refusal =
        refused({"train", "c.toml", "run.output=refused", "data.validation=", "train.evaluate_every=0",
                 "checkpoint.keep_best=false", override});
    EXPECT_GE(count(refusal, key), 1u) << refusal;
  }
}

// Each named set has its line, its numbers and its plot. The first set decides which checkpoint is the best.
TEST_F(Best, SeveralValidationSetsAreEvaluatedEach) {
  write_file(*scratch_ / "easy.txt", std::string(3000, 'a') + "\n\n" + std::string(3000, 'b'));
  done({"prepare", "--text", "easy.txt", "--tokenizer", "bytes", "--validation", "0.3", "--out", "easy"});
  const std::string sets = "data.validation=[\"letters=data\", \"easy=easy\"]";
  const std::string out = done({"train", "c.toml", "run.output=sets", "train.steps=8", sets, "run.tensorboard=true"});
  const std::string alone = done({"train", "c.toml", "run.output=only", "train.steps=8", "data.validation=easy"});
  const std::vector<Evaluation> letters = evaluations_in(*scratch_ / "sets"), easy = evaluations_in(*scratch_ / "only");
  ASSERT_EQ(letters.size(), 2u);
  ASSERT_EQ(easy.size(), 2u);
  EXPECT_EQ(letters.front().loss, evaluations_in(*scratch_ / "whole").front().loss);
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(count(out, fmt::format("step {}  validation loss of letters {:.4f}", letters[i].step, letters[i].loss)),
              1u);
    EXPECT_EQ(count(out, fmt::format("step {}  validation loss of easy {:.4f}", easy[i].step, easy[i].loss)), 1u)
        << out;
  }
  size_t lines = 0;
  for (const nlohmann::json& line : read_metrics(*scratch_ / "sets"))
    if (line.contains("sets")) {
      EXPECT_EQ(line.at("sets").at("easy").at("loss"), easy[lines].loss);
      EXPECT_EQ(line.at("sets").at("letters").at("loss"), line.at("validation_loss"));
      lines++;
    }
  EXPECT_EQ(lines, 2u);
  done({"report", "sets", "only", "--out", "sets.html"});
  const std::string page = read_file(*scratch_ / "sets.html");
  EXPECT_EQ(count(page, "\"title\":\"Validation loss of easy\""), 1u);
  // The run continues with the same sets without a warning, and with others it says so.
  EXPECT_EQ(count(done({"train", "c.toml", "run.output=sets", "train.steps=9", sets}), "changed: data.validation"), 0u);
  EXPECT_EQ(count(done({"train", "c.toml", "run.output=sets", "train.steps=10", "data.validation=easy"}),
                  "changed: data.validation"),
            1u);
  for (const auto& [value, words] : {std::pair{"[\"data\", \"easy\"]", "\"data\" is not NAME=SOURCE"},
                                     {"[\"a=data\", \"a=easy\"]", "two sets are called a"},
                                     {"[\"a=data\", \"b=nowhere\"]", "nowhere"},
                                     {"[\"a/b=data\"]", "is not NAME=SOURCE"}}) {
    const std::string refusal = refused({"train", "c.toml", "run.output=x", std::string("data.validation=") + value});
    EXPECT_GE(count(refusal, words), 1u) << refusal;
  }
}

std::vector<float> weights_in(const std::string& folder, const std::string& name) {
  CheckpointReader reader(folder);
  const std::vector<int64_t> shape = reader.shape(name);
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  std::vector<float> values(static_cast<size_t>(elements));
  reader.read(flat_shard(name, shape, {0, elements}), values.data());
  return values;
}

TEST_F(Best, AnAverageIsTheMeanOfTheWeights) {
  done({"train", "c.toml", "run.output=three", "train.steps=12", "checkpoint.every=4", "checkpoint.keep=0"});
  const std::string from = *scratch_ / "three/checkpoints/";
  EXPECT_EQ(count(done({"checkpoint", "average", "three", "--out", "mean"}), "mean/step-00000012"), 1u);
  CheckpointReader mean(*scratch_ / "mean/step-00000012");
  const std::set<std::string> names = mean.names();
  ASSERT_GT(names.size(), 10u);
  for (const std::string& name : names) {
    ASSERT_TRUE(name.starts_with("parameters/")) << name;
    const std::vector<float> a = weights_in(from + step_name(4), name), b = weights_in(from + step_name(8), name),
                             c = weights_in(from + step_name(12), name), m = weights_in(mean.folder(), name);
    for (size_t i = 0; i < m.size(); i++)
      ASSERT_EQ(m[i], static_cast<float>((double{a[i]} + b[i] + c[i]) / 3)) << name << " " << i;
  }
  // Of two, by their paths or by --last, it is the same.
  done({"checkpoint", "average", "three", "--last", "2", "--out", "last"});
  done({"checkpoint", "average", "three/checkpoints/step-00000008", "three", "--out", "named"});
  EXPECT_EQ(count(done({"checkpoint", "diff", "last", "named"}), ": equal"), 1u);
  EXPECT_NE(weights_in(*scratch_ / "last/step-00000012", "parameters/wte.weight"),
            weights_in(mean.folder(), "parameters/wte.weight"));
  // What follows takes it as any weights, but no run resumes from it.
  done({"generate", "mean", "--prompt", "line", "--tokens", "4"});
  done({"checkpoint", "verify", "mean"});
  done({"checkpoint", "export", "mean", "--out", "exported"});
  done({"train", "c.toml", "run.output=from-mean", "train.steps=1", "checkpoint.init_from=mean"});
  const std::string resumed = refused({"train", "c.toml", "run.output=more", "checkpoint.resume=mean"});
  EXPECT_EQ(count(resumed, "checkpoint.init_from = mean/step-00000012"), 1u) << resumed;
}

TEST_F(Best, AnAverageOfWhatCannotBeAveragedIsRefused) {
  done({"train", "c.toml", "run.output=one", "train.steps=4"});
  done({"train", "c.toml", "run.output=wide", "train.steps=4", "model.hidden=48"});
  done({"train", "c.toml", "run.output=adapted", "train.steps=8", "checkpoint.init_from=one", "adapter.rank=2",
        "checkpoint.every=4", "checkpoint.keep=0"});
  const auto expect_refusal = [](const Args& args, const std::string& words) {
    Args all{"checkpoint", "average"};
    all.insert(all.end(), args.begin(), args.end());
    const std::string refusal = refused(all);
    EXPECT_EQ(count(refusal, words), 1u) << refusal;
  };
  expect_refusal({"one", "--out", "x"}, "one has 1 complete checkpoint, and an average takes two or more");
  expect_refusal({"one", "wide", "--out", "x"}, "model.hidden is 48 there and 32");
  expect_refusal({"one", "one", "--out", "x"}, "is named twice");
  expect_refusal({"one", "wide", "--last", "2", "--out", "x"}, "--last 2 is for one run folder");
  expect_refusal({"adapted", "--out", "x"}, "has adapters");
  EXPECT_FALSE(fs::exists(*scratch_ / "x"));
  done({"checkpoint", "average", "one", "whole", "--out", "y"});
  const std::string twice = refused({"checkpoint", "average", "one", "whole", "--out", "y"});
  EXPECT_EQ(count(twice, "is a complete checkpoint and is not overwritten"), 1u) << twice;
}

}  // namespace
}  // namespace megalith::e2e
