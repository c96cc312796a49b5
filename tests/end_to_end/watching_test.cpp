// A run as one watches it: on a terminal, in TensorBoard, as a page.
#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

TEST(Watching, a_terminal_shows_a_bar_and_few_lines) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  // `script` runs its command on a pseudo-terminal.
  if (const Result tried = run({"script", "-qec", "true", "/dev/null"}, scratch.folder()); tried.status != 0)
    GTEST_SKIP() << "there is no script(1), or no pseudo-terminal: " << tried.text();
  std::string command;
  for (const std::string& word : mpirun(2, {"train", "config.toml", "train.log_every=0", "train.steps=40"}))
    command += word + " ";
  for (const bool terminal : {true, false}) {
    SCOPED_TRACE(terminal);
    fs::remove_all(scratch / "run");
    const Result shown =
        run({"script", "-qec", terminal ? command : command + " > out.txt", "/dev/null"}, scratch.folder());
    ASSERT_EQ(shown.status, 0) << shown.text();
    const std::string out = terminal ? shown.out : read_file(scratch / "out.txt");
    // Lines stand at the beginning of theirs, after what has removed the bar.
    EXPECT_EQ(count(out, terminal ? "\r\033[Kstep 40/40  loss" : "\nstep 40/40  loss"), 1u) << out;
    EXPECT_EQ(count(out, "step 1/40  loss"), terminal ? 2u : 1u) << out;  // in the bar as well
    EXPECT_EQ(count(out, "] 100.0%"), terminal ? 1u : 0u) << out;
    EXPECT_EQ(count(out, "\033"), terminal ? count(out, "\033[K") : 0u) << out;
    EXPECT_LT(count(out, "ETA") - count(out, "%  step"), 20u) << "a line for each step: " << out;
    EXPECT_EQ(read_steps(scratch / "run").size(), 40u);
  }
}

// mpirun tells its ranks no size of the terminal. The time that is left was cut at 80 columns, and lines wrapped.
TEST(Watching, a_narrow_terminal_has_room_for_each_line_and_the_time_that_is_left) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  if (const Result tried = run({"script", "-qec", "true", "/dev/null"}, scratch.folder()); tried.status != 0)
    GTEST_SKIP() << "there is no script(1), or no pseudo-terminal: " << tried.text();
  std::string command = "stty cols 60; ";
  for (const std::string& word : mpirun(2, {"train", "config.toml", "train.log_every=0", "train.steps=40"}))
    command += word + " ";
  const Result shown = run({"script", "-qec", command, "/dev/null"}, scratch.folder());
  ASSERT_EQ(shown.status, 0) << shown.text();
  const std::string bar_begin = "\r\033[K[", line_begin = "\r\033[Kstep ";
  size_t bars = 0, lines = 0;
  for (size_t at = shown.out.find("\r\033[K"); at != std::string::npos; at = shown.out.find("\r\033[K", at + 1)) {
    const std::string text = shown.out.substr(at + 4, shown.out.find('\r', at + 1) - at - 4);
    if (shown.out.compare(at, bar_begin.size(), bar_begin) == 0) {
      bars++;
      EXPECT_LT(text.size(), 60u) << text;
      EXPECT_NE(text.find("  ETA "), std::string::npos) << text;
      EXPECT_TRUE(text.ends_with("s")) << "minutes and seconds: " << text;
      EXPECT_EQ(shown.out[at + 4 + text.size()], '\r') << "what comes next stands behind it";
    } else if (shown.out.compare(at, line_begin.size(), line_begin) == 0 && text.find("loss") < 20) {
      lines++;
      EXPECT_LE(text.size(), 60u) << text;
    }
  }
  EXPECT_GT(bars, 0u) << shown.text();
  EXPECT_GT(lines, 0u) << shown.text();
  EXPECT_NE(read_file(scratch / "run/log.txt").find(" TFLOP/s  ETA "), std::string::npos) << "the file has all of it";
}

// This holds for whatever is said while there is a bar, as of a signal.
TEST(Watching, a_line_takes_the_place_of_the_bar) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  if (const Result tried = run({"script", "-qec", "true", "/dev/null"}, scratch.folder()); tried.status != 0)
    GTEST_SKIP() << "there is no script(1), or no pseudo-terminal: " << tried.text();
  std::string command;
  for (const std::string& word :
       megalith({"train", "config.toml", "train.log_every=0", "train.steps=1000000", "optimizer.decay_steps=100"}))
    command += word + " ";
  write_file(scratch / "signalled.sh", command +
                                           "&\nuntil grep -q '\"step\":20,' run/metrics.jsonl 2>/dev/null; do sleep "
                                           "0.1; done\nkill -USR1 $!\nwait $!\n");
  const Result shown = run({"script", "-qec", "sh signalled.sh", "/dev/null"}, scratch.folder());
  EXPECT_EQ(shown.status, 75) << shown.text();
  EXPECT_GT(count(shown.out, "%  step"), 0u) << "no bar: " << shown.text();
  EXPECT_EQ(count(shown.out, "\r\033[KSIGUSR1 on rank 0: the run ends after step"), 1u) << shown.text();
}

// The second start repeats steps that the first had made after its checkpoint.
TEST(Watching, tensorboard_shows_each_step_once) {
  SKIP_WITHOUT_REFERENCE();
  const std::string python = python_with("tensorboard");
  if (python.empty()) GTEST_SKIP() << "MEGALITH_PYTHON names no Python with tensorboard";
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  const std::string data = "data.validation=" + reference("tiny") + "/tokens.bin";
  const Args told{
      "run.tensorboard=true",   "checkpoint.every=4", "train.evaluate_every=3", "optimizer.decay_steps=9", data,
      "data.allow_overlap=true"};
  const auto with_steps = [&](const std::string& steps) {
    Args args = told;
    args.push_back("train.steps=" + steps);
    return args;
  };
  train(scratch.folder(), 2, with_steps("6"));
  fs::remove_all(scratch / "run/checkpoints/" + step_name(6));
  train(scratch.folder(), 2, with_steps("9"));

  write_file(
      scratch / "read.py",
      "import json, sys\n"
      "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
      "found = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})\n"
      "found.Reload()\n"
      "print(json.dumps({tag: [[e.step, e.value] for e in found.Scalars(tag)] for tag in found.Tags()['scalars']}))\n");
  const Result read = succeed({python, "read.py", "run/tensorboard"}, scratch);
  const nlohmann::json found = nlohmann::json::parse(read.out.substr(read.out.find('{')));
  for (const char* key : {"loss", "grad_norm", "learning_rate", "tokens_per_second", "validation_loss"}) {
    std::vector<std::pair<int64_t, float>> expected, seen;
    for (const nlohmann::json& line : read_metrics(scratch / "run"))
      if (line.contains(key)) expected.emplace_back(line.at("step"), line.at(key).get<float>());
    for (const nlohmann::json& point : found.at(key)) seen.emplace_back(point.at(0), point.at(1).get<float>());
    EXPECT_EQ(seen, expected) << key;
    EXPECT_FALSE(seen.empty()) << key;
  }
}

TEST(Watching, a_report_of_runs) {
  SKIP_WITHOUT_REFERENCE();
  const Scratch scratch;
  write_reference_config(scratch / "config.toml", reference("tiny"), "");
  train(scratch.folder(), 2, {"train.steps=4", "run.output=one"});
  train(scratch.folder(), 1, {"train.steps=4", "run.output=two", "optimizer.learning_rate=0.5"});
  const Result one = succeed(megalith({"report", "one"}), scratch);
  EXPECT_EQ(one.out.find("one/report.html: 1 run of 4 steps"), 0u) << one.text();
  const Result two = succeed(megalith({"report", "one", "two/", "--out", "both.html"}), scratch);
  const std::string page = read_file(scratch / "both.html");
  for (const char* word : {"\"name\":\"one\"", "[\"optimizer.learning_rate\",\"0.5\",false]", "\"planned\":[["})
    EXPECT_NE(page.find(word), std::string::npos) << word;

  const auto refused = [&](const Args& args, const std::string& words) {
    const Result result = run(megalith(args), scratch.folder());
    EXPECT_EQ(result.status, 1) << result.text();
    EXPECT_NE(result.err.find(words), std::string::npos) << result.text();
  };
  refused({"report", "three"}, "three is not a run folder");
  refused({"report", "one", "--out", "no/where.html"}, "no/where.html");
  write_file(scratch / "two/metrics.jsonl", "{\"step\":1,\"loss\":3}\n{\"st\n");
  refused({"report", "two"}, "two/metrics.jsonl, line 2 ");
}

}  // namespace
}  // namespace megalith::e2e
