// A step that goes wrong in a run of several ranks: told, counted, skipped, and the same whether the run is stopped,
// killed or left alone; and when there are too many, an error, with a checkpoint from before them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "tests/end_to_end/layout.h"
#include "tests/long_tests.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// Returns what stays the same of the lines of steps.
std::vector<nlohmann::json> course(const std::string& run_folder) {
  std::vector<nlohmann::json> steps;
  for (const nlohmann::json& line : read_metrics(run_folder))
    if (line.contains("grad_norm"))
      steps.push_back({line.at("step"), line.at("loss"), line.at("grad_norm"), line.at("learning_rate"),
                       line.value("skipped", ""), line.value("loss_scale", 0.0)});
  return steps;
}
std::vector<int64_t> skipped_steps(const std::string& run_folder) {
  std::vector<int64_t> steps;
  for (const nlohmann::json& line : read_metrics(run_folder))
    if (line.contains("skipped")) steps.push_back(line.at("step"));
  return steps;
}
nlohmann::json manifest_of(const std::string& run_folder, int64_t step) {
  return nlohmann::json::parse(read_file(run_folder + "/checkpoints/" + step_name(step) + "/manifest.json"));
}
nlohmann::json state_of(const std::string& run_folder, int64_t step) {
  return manifest_of(run_folder, step).at("state");
}

// Returns the folders of checkpoints, under whatever names.
std::vector<std::string> folders_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}
std::string suspect(int64_t step) { return step_name(step) + ".suspect-1"; }

void expect_equal_runs(const std::string& a, const std::string& b, int64_t steps) {
  EXPECT_EQ(course(a), course(b));
  expect_same_rank_files(a + "/checkpoints/" + step_name(steps), b + "/checkpoints/" + step_name(steps));
  const nlohmann::json x = state_of(a, steps), y = state_of(b, steps);
  for (const char* key :
       {"sequences", "updates", "skipped", "skipped_in_a_row", "norms", "loss_scale", "overflows", "good_steps"})
    EXPECT_EQ(x.at(key), y.at(key)) << key;
}

// Sequence 7 of the batch is at fault, whose rows begin at 7 * 24: in the data, so to speak, in the last layer, and in
// the gradient of the rank that has this sequence.
const std::vector<std::string> places = {"172:embedding", "170:h.7", "169:d h.3"};

const std::vector<Layout>& spoilt_layouts() {
  static const std::vector<Layout> all = {{"odd", 2, "full_shard"},
                                          {"odd", 2, "tensor=2"},
                                          {"odd", 2, "pipeline=2 virtual=2"},
                                          {"odd", 4, "tensor=2 sequence pipeline=2"},
                                          {"odd", 2, "pipeline=2 virtual=2 schedule=zb_h1"},
                                          {"odd", 4, "tensor=2 sequence pieces=2 pipeline=2 schedule=zb_h1"},
                                          {"odd", 2, "pipeline=2 virtual=2 schedule=zb_v"}};
  return all;
}

// Trains each of `layouts` in one go and in pieces that end at the steps `ends`, with the overrides of its
// number, and expects the same of both. Returns the run folders of those in one go; those in pieces are beside them.
struct InPieces {
  int ranks;
  std::string whole, pieces;
};
std::vector<InPieces> train_whole_and_in_pieces(const Scratch& scratch, const std::vector<Layout>& layouts,
                                                const std::function<std::vector<std::string>(size_t)>& overrides,
                                                const std::vector<int>& ends) {
  std::vector<InPieces> runs;
  for (const Size& size : sizes_of(layouts)) {
    std::vector<Training> trainings;
    for (size_t i = 0; i < layouts.size(); i++) {
      const Layout& layout = layouts[i];
      if (layout.ranks != size.ranks) continue;
      const std::string name = fmt::format("{}_on_{}", i, size.ranks);
      trainings.push_back({"whole" + name, layout.words, overrides(i)});
      trainings.back().overrides.push_back(fmt::format("train.steps={}", ends.back()));
      for (int end : ends) {
        trainings.push_back({"pieces" + name, layout.words, overrides(i)});
        trainings.back().overrides.push_back(fmt::format("train.steps={}", end));
      }
      runs.push_back({size.ranks, scratch / ("whole" + name), scratch / ("pieces" + name)});
    }
    train_several(scratch, size.ranks, trainings);
  }
  for (const auto& [ranks, whole, pieces] : runs) {
    SCOPED_TRACE(whole);
    EXPECT_EQ(manifest_of(whole, ends.back()).at("files").size(), static_cast<size_t>(ranks));
    expect_equal_runs(whole, pieces, ends.back());
  }
  return runs;
}

// Stopped before, between and after two that are skipped.
TEST(BadSteps, are_skipped_and_resumed_through) {
  const Scratch scratch;
  write_odd(scratch);
  const auto spoil = [](size_t i) { return std::vector<std::string>{"spoil=3-4:" + places[i % places.size()]}; };
  for (const auto& [ranks, whole, pieces] : train_whole_and_in_pieces(scratch, spoilt_layouts(), spoil, {2, 3, 4, 6})) {
    SCOPED_TRACE(whole);
    EXPECT_EQ(skipped_steps(whole), (std::vector<int64_t>{3, 4}));
    const nlohmann::json between = state_of(pieces, 4), end = state_of(whole, 6);
    EXPECT_EQ(between.at("skipped"), 2);
    EXPECT_EQ(between.at("skipped_in_a_row"), 2);
    EXPECT_EQ(between.at("updates"), 2);
    EXPECT_EQ(between.at("sequences"), 48);
    EXPECT_EQ(end.at("skipped"), 2);
    EXPECT_EQ(end.at("skipped_in_a_row"), 0);
    EXPECT_EQ(end.at("updates"), 4);
    EXPECT_EQ(end.at("norms").size(), 4u);
  }
}

// In fp16 the loss scale, its overflows and the updates since are carried over as well.
TEST(BadSteps, a_loss_scale_falls_and_rises_alike_in_pieces) {
  const Scratch scratch;
  write_odd(scratch);
  const auto fp16 = [](size_t) {
    return std::vector<std::string>{"precision.compute=fp16", "precision.initial_loss_scale=16777216",
                                    "precision.loss_scale_window=5"};
  };
  std::vector<Layout> layouts = spoilt_layouts();
  if (!taken("BadSteps.a_loss_scale_falls_and_rises_alike_in_pieces")) layouts = {layouts.front(), layouts.back()};
  for (const InPieces& run : train_whole_and_in_pieces(scratch, layouts, fp16, {2, 7, 14})) {
    SCOPED_TRACE(run.whole);
    const std::vector<int64_t> skipped = skipped_steps(run.whole);
    EXPECT_GT(skipped.size(), 1u);
    EXPECT_LT(skipped.size(), 12u);
    std::set<double> scales;
    for (const nlohmann::json& line : read_metrics(run.whole))
      if (line.contains("loss_scale")) scales.insert(line.at("loss_scale").get<double>());
    EXPECT_GT(scales.size(), 2u);
    EXPECT_EQ(state_of(run.whole, 14).at("skipped"), skipped.size());
    EXPECT_EQ(state_of(run.whole, 14).at("updates"), 14 - skipped.size());
  }
}

// The log says which ranks, which samples of the data and which unit.
TEST(BadSteps, are_told_with_ranks_samples_and_unit) {
  const Scratch scratch;
  write_odd(scratch);
  // Rank 1 has sequences 6 to 11 of a batch, three microbatches of two; in the order of the file, samples 12 to 23 are
  // the second batch.
  const Result data = train_several(scratch, 2, {{"data", "", {"data.shuffle=false", "spoil=2-2:172:embedding"}}});
  EXPECT_EQ(count(data.out,
                  "warning: step 2 is skipped, 1 in a row and 1 in all: the loss is nan and the gradient norm "
                  "nan; the gradient is not finite from final norm back\n"),
            1u)
      << data.text();
  EXPECT_EQ(count(data.out,
                  "warning: step 2: rank 1: the loss is not finite in microbatch 1, samples 18, 19 of data.train; "),
            1u)
      << data.text();
  EXPECT_EQ(count(data.out, "samples 18, 19 of data.train"), 1u) << data.text();
  EXPECT_EQ(count(data.out, "done: 6 steps, 72 sequences; skipped: 1\n"), 1u) << data.text();
  const Result gradient = train_several(scratch, 2, {{"gradient", "pipeline=2", {"spoil=2-2:172:d h.1"}}});
  EXPECT_EQ(count(gradient.out,
                  "rank 0: its part of the gradient is not finite in token embedding, position embedding, block 0, "
                  "block 1\n"),
            1u)
      << gradient.text();
  EXPECT_EQ(count(gradient.out, "samples"), 0u) << gradient.text();
}

// Killed while or soon after it skips, for overflows in fp16 first and then for a NaN in the data; the run that goes on
// is the run that was never killed.
TEST(BadSteps, survive_a_kill) {
  const Scratch scratch;
  write_odd(scratch);
  const auto job = [&](const std::string& name) {
    return mpirun(2, place("MEGALITH_TRAIN_SEVERAL", MEGALITH_TRAIN_SEVERAL),
                  {"config.toml", "run.output=" + name, "train.steps=10", "checkpoint.every=1", "checkpoint.keep=2",
                   "precision.compute=fp16", "precision.initial_loss_scale=8388608", "spoil=5-6:172:h.7"});
  };
  succeed(job("whole"), scratch);
  const std::vector<int64_t> skipped = skipped_steps(scratch / "whole");
  for (const int64_t step : {1, 2, 5, 6}) EXPECT_EQ(std::count(skipped.begin(), skipped.end(), step), 1) << step;
  // When it has just skipped, and once more as soon as it has gone on.
  for (const char* when : {"step 2 is skipped", "step 5 is skipped", "\nstep "}) {
    Process process(job("killed"), scratch.folder());
    const double start = now();
    while (process.running() && process.out().find(when) == std::string::npos && now() - start < 60) sleep_for(0.002);
    process.kill_all();
    EXPECT_FALSE(fs::exists(scratch / ("killed/checkpoints/" + step_name(10)))) << "it was killed too late";
  }
  succeed(job("killed"), scratch);
  EXPECT_EQ(skipped_steps(scratch / "killed"), skipped);
  expect_equal_runs(scratch / "whole", scratch / "killed", 10);
}

// A run of train_several that is to end with an error, which is returned.
std::string error_of(const Scratch& scratch, int ranks, Args args) {
  args.insert(args.begin(), "config.toml");
  const Result ended =
      run(mpirun(ranks, place("MEGALITH_TRAIN_SEVERAL", MEGALITH_TRAIN_SEVERAL), args), scratch.folder());
  EXPECT_NE(ended.status, 0) << ended.text();
  return ended.err;
}

// Three in a row: the run ends, and resumes from where it stood before them.
TEST(BadSteps, too_many_end_the_run) {
  const Scratch scratch;
  write_odd(scratch);
  for (const Layout& layout : {spoilt_layouts().front(), spoilt_layouts().back()}) {
    SCOPED_TRACE(layout.words);
    for (const char* folder : {"ended", "before", "good"}) fs::remove_all(scratch / folder);
    Args args{"run.output=ended", "checkpoint.keep=1", "spoil=3-5:172:embedding"};
    for (const std::string& o : overrides_of(layout.words)) args.push_back(o);
    const std::string error = error_of(scratch, layout.ranks, args);
    for (const char* words :
         {"steps 3 to 5 were skipped, and train.max_bad_steps = 3",
          "the same command resumes from ended/checkpoints/step-00000002, whose weights still have a normal loss",
          "Lower optimizer.learning_rate (it was 0.003)", "`megalith replay ended --step 5`"})
      EXPECT_NE(error.find(words), std::string::npos) << words << error;
    EXPECT_EQ(checkpoints_in(scratch / "ended/checkpoints"), std::vector<std::string>{step_name(2)});
    // That checkpoint is what a run of two steps leaves, and what comes of it is what comes of the good steps.
    train_several(
        scratch, layout.ranks,
        {{"before", layout.words, {"train.steps=2"}}, {"good", layout.words, {}}, {"ended", layout.words, {}}});
    expect_same_rank_files(scratch / "ended/checkpoints/" + step_name(2),
                           scratch / "before/checkpoints/" + step_name(2));
    for (const char* key :
         {"sequences", "updates", "skipped", "skipped_in_a_row", "norms", "loss_scale", "overflows", "good_steps"})
      EXPECT_EQ(state_of(scratch / "ended", 2).at(key), state_of(scratch / "before", 2).at(key)) << key;
    expect_equal_runs(scratch / "ended", scratch / "good", 6);
  }
}

// What there is to look at in them.
TEST(BadSteps, are_kept_to_be_looked_at) {
  const Scratch scratch;
  write_odd(scratch);
  error_of(scratch, 2,
           {"run.output=run", "checkpoint.every=1", "checkpoint.asynchronous=false", "spoil=3-5:172:embedding"});
  for (const int64_t step : {3, 4, 5}) {
    SCOPED_TRACE(step);
    const auto kept = nlohmann::json::parse(read_file(scratch / fmt::format("run/bad-steps/step-{:08}.json", step)));
    EXPECT_EQ(kept.at("step"), step);
    EXPECT_EQ(kept.at("samples"), (std::vector<int64_t>{12 * (step - 1), 12 * step}));
    EXPECT_EQ(kept.at("decision"), "not finite");
    EXPECT_EQ(kept.at("ended_the_run"), step == 5);
    EXPECT_EQ(kept.at("skipped_in_a_row"), step - 2);
    EXPECT_EQ(kept.at("loss"), "nan");
    EXPECT_EQ(kept.at("first_bad_unit"), "final norm");
    EXPECT_EQ(kept.at("checkpoint").at("step"), step - 1);
    EXPECT_NE(kept.at("config").get<std::string>().find("learning_rate = 0.003"), std::string::npos);
    ASSERT_EQ(kept.at("by_rank").size(), 2u) << "both hold a part of the gradient";
    EXPECT_TRUE(kept.at("by_rank").at(0).at("microbatches").empty());
    const auto& microbatch = kept.at("by_rank").at(1).at("microbatches").at(0);
    EXPECT_EQ(microbatch.at("microbatch"), 1) << "sequence 7 is the second of its rank";
    EXPECT_EQ(microbatch.at("samples").size(), 2u);
  }
  EXPECT_FALSE(fs::exists(scratch / "run/bad-steps/step-00000002.json"));
}

// Checkpoints among the bad steps delete none from before them. Then those that no stable step followed are suspects,
// and the error says what is left.
TEST(BadSteps, leave_a_checkpoint_from_before_them) {
  const Scratch scratch;
  write_odd(scratch);
  const auto expect_told = [&](const Args& args, const std::string& newest) {
    const std::string error = error_of(scratch, 2, args);
    EXPECT_NE(error.find("steps 3 to 5 were skipped"), std::string::npos) << error;
    EXPECT_NE(error.find(newest), std::string::npos) << newest << "\n" << error;
  };
  const auto kept = [&] { return folders_in(scratch / "run/checkpoints"); };
  expect_told(
      {"checkpoint.every=1", "checkpoint.keep=2", "spoil=3-5:172:embedding"},
      "resumes from run/checkpoints/step-00000002, whose weights still have a normal loss on the samples before "
      "these; 2 newer checkpoints");
  EXPECT_EQ(kept(), (std::vector<std::string>{step_name(1), step_name(2), suspect(3), suspect(4)}));
  // Resumed among them.
  const std::string resume = "checkpoint.resume=run/checkpoints/";
  expect_told({resume + suspect(4), "spoil=5-5:172:embedding"}, "resumes from run/checkpoints/step-00000004, whose");
  EXPECT_EQ(kept(), (std::vector<std::string>{step_name(1), step_name(2), suspect(3), step_name(4), suspect(4)}));
  // Resumed from another folder, which is not where the next would look.
  expect_told({resume + step_name(2), "run.output=other", "spoil=3-5:172:embedding"},
              "the same command with checkpoint.resume=auto resumes from other/checkpoints/step-00000002");
  expect_same_rank_files(scratch / "other/checkpoints/" + step_name(2), scratch / "run/checkpoints/" + step_name(2));
}

// A cause of the real kind: a learning rate that destroys the weights. Checkpoints from before that are all kept, and
// the one that it has spoilt is not gone on from.
TEST(BadSteps, a_run_that_diverges_keeps_its_checkpoints) {
  const Scratch scratch;
  write_odd(scratch);
  train(scratch.folder(), 2, {"train.steps=2", "checkpoint.every=1", "checkpoint.keep=1"});
  const Result diverged = run(mpirun(2, {"train", "config.toml", "checkpoint.keep=1", "train.max_bad_steps=1",
                                         "optimizer.learning_rate=1e30", "checkpoint.allow_changes=true"}),
                              scratch.folder());
  EXPECT_EQ(diverged.status, 1) << diverged.text();
  EXPECT_EQ(count(diverged.err, "megalith: "), 1u) << diverged.text();
  for (const char* words : {"step 4 was skipped, and train.max_bad_steps = 1",
                            "resumes from run/checkpoints/step-00000001, which 2 stable steps followed",
                            "are now run/checkpoints/step-00000003.suspect-1 and the like"})
    EXPECT_NE(diverged.err.find(words), std::string::npos) << words << diverged.text();
  EXPECT_EQ(folders_in(scratch / "run/checkpoints"), (std::vector<std::string>{step_name(1), suspect(2), suspect(3)}));
}

// The advice, followed to the letter: the same command with what it says resumes from a checkpoint of stable weights.
TEST(BadSteps, the_advice_works) {
  const Scratch scratch;
  write_odd(scratch);
  const Args common{"config.toml",
                    "run.output=run",
                    "optimizer.decay=constant",
                    "checkpoint.every=4",
                    "checkpoint.keep=2",
                    "checkpoint.settle=6",
                    "data.validation=tokens.bin",
                    "data.allow_overlap=true",
                    "train.evaluate_batches=1"};
  const auto train_with = [&](const Args& more) {
    Args args{"train"};
    for (const Args* all : {&common, &more}) args.insert(args.end(), all->begin(), all->end());
    return run(mpirun(2, args), scratch.folder());
  };
  // The value of what the message tells after these words.
  const auto told = [](const std::string& text, const std::string& words) {
    const size_t at = text.find(words);
    return at == std::string::npos
               ? ""
               : text.substr(at + words.size(), text.find_first_of(" ,;.)", at + words.size()) - at - words.size());
  };
  const auto follow = [&](const Result& ended, const std::string& steps, int64_t from) {
    EXPECT_EQ(ended.status, 1) << ended.text();
    EXPECT_EQ(count(ended.err, "Lower optimizer.learning_rate (it was 10000)"), 1u) << ended.text();
    EXPECT_EQ(count(ended.err, "with checkpoint.allow_changes=true"), 1u) << ended.text();
    const Result again = train_with({steps, "optimizer.learning_rate=3e-3", "checkpoint.allow_changes=true"});
    EXPECT_EQ(again.status, 0) << again.text();
    EXPECT_EQ(count(again.out, fmt::format("resumed after step {}\n", from)), from > 0 ? 1u : 0u) << again.text();
    EXPECT_TRUE(skipped_steps(scratch / "run").empty());
    for (const Step& step : read_steps(scratch / "run")) EXPECT_LT(step.loss, 6) << step.step;
  };
  // From the beginning: no checkpoint is from before it.
  const Result at_once = train_with({"train.steps=40", "optimizer.learning_rate=1e4"});
  EXPECT_EQ(count(at_once.err, "the same command starts from the beginning"), 1u) << at_once.text();
  follow(at_once, "train.steps=20", 0);
  // After steps that were stable.
  const Result later = train_with({"train.steps=60", "optimizer.learning_rate=1e4", "checkpoint.allow_changes=true"});
  const std::string left = told(later.err, "resumes from run/checkpoints/");
  EXPECT_LE(left, step_name(20)) << later.text();
  EXPECT_GE(left, step_name(12)) << later.text();
  EXPECT_TRUE(fs::exists(scratch / "run/checkpoints/" + left));
  EXPECT_EQ(checkpoints_in(scratch / "run/checkpoints").back(), left) << later.text();
  follow(later, "train.steps=40", std::stoll(left.substr(5)));
}

// A validation loss that is not finite is told; and the run is not done where it is the last.
TEST(BadSteps, a_validation_that_is_not_finite_is_no_end) {
  const Scratch scratch;
  write_odd(scratch);
  // The third time that the row is shown is in the evaluation after step 2.
  const Args common{"data.validation=tokens.bin", "data.allow_overlap=true", "train.evaluate_every=2",
                    "train.evaluate_batches=1", "spoil=3-3:172:embedding"};
  const auto with = [&](Args more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  const std::string error = error_of(scratch, 2, with({"run.output=last", "train.steps=2"}));
  EXPECT_GE(count(error, "the last validation loss, after step 2, is not finite"), 1u) << error;
  EXPECT_EQ(checkpoints_in(scratch / "last/checkpoints"), std::vector<std::string>{step_name(2)});
  const Result amid = train_several(scratch, 2, {{"amid", "", with({"train.steps=4"})}});
  EXPECT_EQ(count(amid.out, "warning: step 2: the validation loss is not finite"), 1u) << amid.text();
  EXPECT_EQ(count(amid.out, "done: 4 steps"), 1u) << amid.text();
}

}  // namespace
}  // namespace megalith::e2e
