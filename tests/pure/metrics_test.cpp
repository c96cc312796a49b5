// metrics.jsonl: one object a step, and after a resume it reads as if the run had never stopped.
#include "trainer/train/metrics.h"

#include <unistd.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/message_of.h"
#include "trainer/log/log.h"

namespace megalith {
namespace {

class MetricsFile : public testing::Test {
 protected:
  MetricsFile() {
    log_nowhere();
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith_metrics_XXXXXX").string();
    CHECK(mkdtemp(pattern.data()), "cannot make {}", pattern);
    folder_ = pattern;
  }
  ~MetricsFile() override {
    std::filesystem::remove_all(folder_);
    log_to_console();
  }

  std::string path() const { return folder_ + "/metrics.jsonl"; }
  void put(const std::string& text) const { std::ofstream(path()) << text; }
  std::vector<std::string> lines() const {
    std::ifstream in(path());
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  // As a run that resumes after `completed` steps opens it.
  std::vector<std::string> lines_kept(int64_t completed) const {
    { const Metrics metrics(folder_, true, completed, {}); }
    return lines();
  }

  std::string folder_;
};

TEST_F(MetricsFile, DropsStepsBeyondTheCheckpoint) {
  put("{\"step\":1}\n{\"step\":2,\"loss\":3.5}\n{\"step\":2,\"validation_loss\":3}\n{\"step\":3}\n{\"step\":4}\n");
  EXPECT_EQ(lines_kept(9).size(), 5u);
  EXPECT_EQ(lines_kept(2), (std::vector<std::string>{"{\"step\":1}", "{\"step\":2,\"loss\":3.5}",
                                                     "{\"step\":2,\"validation_loss\":3}"}));
  EXPECT_TRUE(lines_kept(0).empty());
}

TEST_F(MetricsFile, StepsThatCannotBeAreNone) {
  put("{\"step\":-9223372036854775808,\"loss\":1}\n{\"step\":18446744073709551615,\"loss\":1}\n"
      "{\"start\":{\"completed_steps\":-1}}\n{\"start\":7}\n{\"step\":1,\"loss\":1}\n");
  EXPECT_EQ(lines_kept(3), std::vector<std::string>{"{\"step\":1,\"loss\":1}"});
}

TEST_F(MetricsFile, AStartFromTheBeginningLosesNothing) {
  const auto earlier = [&](int k) {
    std::ifstream in(folder_ + fmt::format("/metrics.earlier-{}.jsonl", k));
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  put("{\"step\":1}\n{\"step\":2}\n");
  EXPECT_TRUE(lines_kept(0).empty());
  EXPECT_EQ(earlier(1), "{\"step\":1}\n{\"step\":2}\n");
  put("{\"step\":1}\n{\"st");
  EXPECT_TRUE(lines_kept(0).empty());
  EXPECT_EQ(earlier(2), "{\"step\":1}\n{\"st");
  EXPECT_TRUE(lines_kept(0).empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/metrics.earlier-3.jsonl")) << "there was no step to keep";
}

TEST_F(MetricsFile, DropsALineThatADeathCutShort) {
  const std::string whole = "{\"step\":1}\n", last = "{\"step\":2,\"loss\":3.25}";
  for (size_t length = 0; length < last.size(); length++) {
    put(whole + last.substr(0, length));
    EXPECT_EQ(lines_kept(5), std::vector<std::string>{"{\"step\":1}"}) << "cut after " << length;
  }
  put(whole + last);
  EXPECT_EQ(lines_kept(5), (std::vector<std::string>{"{\"step\":1}", last})) << "only the line's end was cut";
}

TEST_F(MetricsFile, DropsWhatIsNoStep) {
  put("3\n\n{\"loss\":1}\n[1]\nnot json\n{\"step\":1}\n");
  EXPECT_EQ(lines_kept(5), std::vector<std::string>{"{\"step\":1}"});
  for (const char* no_number : {"\"one\"", "1.5", "true", "null", "[1]"}) {
    put(fmt::format("{{\"step\":{}}}\n{{\"step\":1}}\n", no_number));
    EXPECT_EQ(lines_kept(5), std::vector<std::string>{"{\"step\":1}"}) << no_number;
  }
}

TEST_F(MetricsFile, ThatCannotBeWrittenLeavesNothingThatALineCalls) {
  std::filesystem::create_directory(path());
  int calls = 0;
  before_console_lines([&] { calls++; });
  EXPECT_NE(message_of([&] { Metrics(folder_, true, 1, {}); }).find("metrics.jsonl"), std::string::npos);
  log_to_console();
  log_line("a line after it", LogTo::console);
  EXPECT_EQ(calls, 1) << "it is not the one before that is called";
  before_console_lines({});
}

TEST_F(MetricsFile, AppendsOneObjectAStep) {
  put("{\"step\":1}\n{\"step\":2}\n");
  const double before = static_cast<double>(::time(nullptr));
  {
    Metrics metrics(folder_, true, 1,
                    {.tokens_per_step = 35,
                     .model_flops_per_token = 100,
                     .full_flops_per_token = 110,
                     .hardware_flops_per_step = 7000,
                     .peak_flops = 1e6,
                     .devices = 2,
                     .steps = 9,
                     .tokens_before = 35,
                     .memory = {1, 2, 3, 4, 5, 6}},
                    {.config_digest = "0123",
                     .layout = "2 ranks",
                     .parameters = 7,
                     .threads = 3,
                     .command = "megalith train caf\xe9.toml",
                     .fingerprint = {.tokenizer = "t1",
                                     .tokenizer_name = "gpt2",
                                     .sources = {{.name = "a.bin", .content = "9 bytes", .share = 1, .samples = 4}},
                                     .settings = {}},
                     .validation = "5 bytes"});
    const double begin = StepClock::host_now() + 50;  // another reading of the clock would not be this
    metrics.start_clock(begin);
    EXPECT_EQ(lines().size(), 1u) << "nothing of a start that makes no step";
    metrics.end_step({.step = 2,
                      .scalars = {.loss = 3.5, .grad_norm = 0.25},
                      .learning_rate = 1e-3,
                      .measured = {.ended = begin + 0.125}});
    metrics.evaluation(2, {{.loss = 3.0, .tokens = 70, .bytes = 140}});
    EXPECT_EQ(lines().size(), 4u) << "written at once, not when the run ends";
  }
  const std::vector<std::string> all = lines();
  ASSERT_EQ(all.size(), 4u);
  const auto start = nlohmann::json::parse(all[1]).at("start");
  const auto step = nlohmann::json::parse(all[2]), evaluation = nlohmann::json::parse(all[3]);
  EXPECT_EQ(step.at("step"), 2);
  EXPECT_EQ(step.at("loss"), 3.5);
  EXPECT_EQ(step.at("grad_norm"), 0.25);
  EXPECT_EQ(step.at("learning_rate"), 1e-3);
  for (const char* key : {"step_seconds", "tokens_per_second", "model_tflops_per_device", "mfu"})
    EXPECT_TRUE(step.contains(key)) << key;
  for (const auto& timed : {step, evaluation}) {
    EXPECT_EQ(timed.at("tokens_so_far"), 70) << "35 of them before this start";
    EXPECT_GE(timed.at("seconds_since_start"), 0);
    EXPECT_LT(timed.at("seconds_since_start"), 100);
    EXPECT_GE(timed.at("unix_time"), before);
    EXPECT_LT(timed.at("unix_time"), before + 100);
  }
  EXPECT_EQ(start.at("completed_steps"), 1);
  EXPECT_EQ(start.at("tokens_so_far"), 35);
  EXPECT_EQ(start.at("tokens"), 35);
  EXPECT_EQ(start.at("ranks"), 2);
  EXPECT_EQ(start.at("config_digest"), "0123");
  EXPECT_EQ(start.at("layout"), "2 ranks");
  EXPECT_EQ(start.at("parameters"), 7);
  EXPECT_EQ(start.at("threads"), 3);
  EXPECT_EQ(start.at("command"), "megalith train caf\xef\xbf\xbd.toml") << "arguments may be any bytes";
  EXPECT_EQ(start.at("tokenizer"), "t1");
  EXPECT_EQ(start.at("tokenizer_name"), "gpt2");
  EXPECT_EQ(start.at("data").at(0).at("content"), "9 bytes");
  EXPECT_EQ(start.at("held_out"), "5 bytes");
  EXPECT_EQ(start.at("peak_flops"), 1e6);
  EXPECT_EQ(start.at("memory_bytes").at("parameters"), 1);
  EXPECT_EQ(start.at("memory_bytes").at("communication"), 6);
  EXPECT_FALSE(start.contains("host_memory_bytes")) << "none is planned there";
  const double seconds = step.at("step_seconds");
  EXPECT_NEAR(seconds, 0.125, 1e-9) << "by the readings that the parts of the step's time go by";
  EXPECT_NEAR(step.at("tokens_per_second").get<double>() * seconds, 35, 1e-6);
  // Each of two devices makes 1e6 FLOP/s.
  EXPECT_NEAR(step.at("mfu").get<double>() * seconds, 35 * 100 / 2e6, 1e-9);
  EXPECT_NEAR(step.at("mfu_full").get<double>() * seconds, 35 * 110 / 2e6, 1e-9);
  EXPECT_NEAR(step.at("hfu").get<double>() * seconds, 7000 / 2e6, 1e-9);
  EXPECT_EQ(evaluation.at("validation_loss"), 3.0);
  EXPECT_DOUBLE_EQ(evaluation.at("bits_per_byte"), 1.5 / std::log(2.0));
}

// Each start that has left a step has left its line, and no other has.
TEST_F(MetricsFile, StartsStayWithTheirSteps) {
  const std::string first = "{\"start\":{\"completed_steps\":0}}", second = "{\"start\":{\"completed_steps\":2}}";
  put(fmt::format("{}\n{{\"step\":1}}\n{{\"step\":2}}\n{}\n{{\"step\":3}}\n", first, second));
  EXPECT_EQ(lines_kept(9).size(), 5u);
  EXPECT_EQ(lines_kept(3).size(), 5u);
  EXPECT_EQ(lines_kept(2), (std::vector<std::string>{first, "{\"step\":1}", "{\"step\":2}"}));
  put("{\"start\":3}\n{\"start\":{}}\n{\"step\":1}\n");
  EXPECT_EQ(lines_kept(2), std::vector<std::string>{"{\"step\":1}"}) << "no start";
}

TEST_F(MetricsFile, StepsAreSaidAtTheirTurnAndBeforeWhatFollowsFromThem) {
  log_to_console_and(folder_ + "/log.txt");
  {
    Metrics metrics(folder_, true, 0, {.steps = 9}, {}, {.log_every = 4});
    for (int64_t step = 1; step <= 9; step++) {
      const Decision decision = step == 6 ? Decision::spike : Decision::update;
      metrics.end_step(
          {.step = step, .scalars = {.loss = 1, .grad_norm = 1, .decision = decision}, .learning_rate = 0.1});
      if (step == 2) metrics.evaluation(2, {{.loss = 1, .tokens = 1}});
      if (step == 7) metrics.sync();
    }
    metrics.log_last_step();
    metrics.log_last_step();
  }
  log_nowhere();
  std::ifstream in(folder_ + "/log.txt");
  std::string said;
  for (std::string line; std::getline(in, line);)
    said += line.substr(25, 1) + (line.find("skipped") != std::string::npos      ? "s "
                                  : line.find("validation") != std::string::npos ? "v "
                                                                                 : " ");
  EXPECT_EQ(said, "1 2 2v 4 6s 7 8 9 ");
}

TEST_F(MetricsFile, ALossKeepsEveryBit) {
  const double loss = 5.547562428956056, next = std::nextafter(loss, 6);
  {
    Metrics metrics(folder_, true, 0, {});
    metrics.end_step({.step = 1, .scalars = {.loss = loss, .grad_norm = next}, .learning_rate = 0.1});
  }
  const auto object = nlohmann::json::parse(lines().at(1));
  EXPECT_EQ(object.at("loss").get<double>(), loss);
  EXPECT_EQ(object.at("grad_norm").get<double>(), next);
  EXPECT_TRUE(object.at("mfu").is_null()) << "the peak is not known";
}

TEST_F(MetricsFile, MarksStepsThatWereSkipped) {
  {
    Metrics metrics(folder_, true, 0, {});
    metrics.end_step({.step = 1, .scalars = {.loss = 1, .grad_norm = 2}, .learning_rate = 0.1});
    metrics.end_step({.step = 2,
                      .scalars = {.loss = NAN, .grad_norm = INFINITY, .decision = Decision::not_finite},
                      .learning_rate = 0.1});
    metrics.end_step(
        {.step = 3, .scalars = {.loss = 1, .grad_norm = 200, .decision = Decision::spike}, .learning_rate = 0.1});
  }
  const auto line = [&](size_t i) { return nlohmann::json::parse(lines().at(i + 1)); };
  EXPECT_FALSE(line(0).contains("skipped"));
  EXPECT_EQ(line(1).at("skipped"), "not finite");
  EXPECT_TRUE(line(1).at("loss").is_null());
  EXPECT_TRUE(line(1).at("grad_norm").is_null());
  EXPECT_EQ(line(2).at("skipped"), "norm");
  EXPECT_EQ(line(2).at("grad_norm"), 200);
}

TEST_F(MetricsFile, OtherRanksTouchNothing) {
  put("{\"step\":7}\n");
  Metrics metrics(folder_, false, 0, {});
  metrics.start_clock(0);
  metrics.end_step({.step = 1, .scalars = {}, .learning_rate = 0.1});
  metrics.evaluation(1, {{.loss = 1, .tokens = 1, .bytes = 1}});
  EXPECT_EQ(lines(), std::vector<std::string>{"{\"step\":7}"});
}

TEST_F(MetricsFile, RefusesAFolderThatIsNotThere) {
  EXPECT_NE(message_of([&] { Metrics(folder_ + "/none", true, 0, {}); }).find("cannot write"), std::string::npos);
}

TEST(BitsPerByte, FollowsFromTheLoss) {
  // 8 bits for a byte that may be anything: log(256) nats a token of one byte.
  EXPECT_DOUBLE_EQ(bits_per_byte(std::log(256.0), 100, 100), 8);
  EXPECT_DOUBLE_EQ(bits_per_byte(std::log(256.0), 100, 400), 2);
}

}  // namespace
}  // namespace megalith
