// What a run appends as JSON, an object a line, is read to the line where it is damaged; each reader refuses what it
// cannot use, and survives whatever is there.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/system/json.h"
#include "tests/altered_json.h"
#include "tests/data/scratch.h"
#include "tests/long_tests.h"
#include "tests/pure/small_run.h"
#include "trainer/planner/calibrate.h"
#include "trainer/report/page.h"
#include "trainer/train/audit.h"
#include "trainer/train/bad_step_file.h"

namespace megalith {
namespace {

using nlohmann::json;

std::vector<int64_t> steps_in(const std::string& text) {
  std::vector<int64_t> steps;
  for_each_json_line(text, "run/m.jsonl", [&](const json& line) { steps.push_back(whole_number(line.at("step"), 1)); });
  return steps;
}

TEST(JsonLines, AreReadToTheEnd) {
  EXPECT_EQ(steps_in(""), std::vector<int64_t>());
  EXPECT_EQ(steps_in("{\"step\":1}\n{\"step\":2}\n"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(steps_in("{\"step\":1}\n{\"step\":2}"), (std::vector<int64_t>{1, 2})) << "only the line's end was cut";
  const std::string whole = "{\"step\":1}\n", last = "{\"step\":2,\"why\":\"a \\\"word\\\"\",\"of\":[1,{}]}";
  for (size_t length = 0; length < last.size(); length++)
    EXPECT_EQ(steps_in(whole + last.substr(0, length)), std::vector<int64_t>{1}) << "cut after " << length;
}

TEST(JsonLines, ADamagedOneIsNamed) {
  const char* remedy = "restore the file";
  EXPECT_ERROR(steps_in("{\"step\":1}\n{\"step\":2\n{\"step\":3}\n"), "run/m.jsonl, line 2 is damaged", remedy);
  EXPECT_ERROR(steps_in("{\"step\":1}\n{\"step\":2\n"), "run/m.jsonl, line 2 ", remedy);
  EXPECT_ERROR(steps_in("{\"step\":1}\n\n"), "run/m.jsonl, line 2 ", remedy);
  EXPECT_ERROR(steps_in("[1]\n"), "run/m.jsonl, line 1 ", "array is not an object");
  EXPECT_ERROR(steps_in("{\"step\":1}\n7"), "run/m.jsonl, line 2 ", "number is not an object");
  EXPECT_ERROR(steps_in("{\"step\":1}\n{}\n"), "run/m.jsonl, line 2 ", "'step'", "not found");
  EXPECT_ERROR(steps_in("{\"step\":\"1\"}"), "run/m.jsonl, line 1 ", "string is not a whole number");
  EXPECT_ERROR(steps_in("{\"step\":0}"), "run/m.jsonl, line 1 ", "0 is not from 1 to 9223372036854775807");
  EXPECT_ERROR(steps_in("{\"step\":NaN}\n"), "run/m.jsonl, line 1 ");
  EXPECT_ERROR(steps_in("{\"step\":" + std::string(200, '[') + "}\n"), "run/m.jsonl, line 1 ");
  EXPECT_ERROR(for_each_json_line("{}\n{}\n", "f", [](const json&) { FAIL("it is too late"); }),
               "f, line 1: it is too late");
}

TEST(JsonNumbers, AreNumbersWithinBounds) {
  EXPECT_EQ(real_number(3), 3);
  EXPECT_EQ(real_number(-0.5), -0.5);
  for (const json& none : {json(true), json("1"), json(nullptr), json::array({1}), json::object()})
    EXPECT_THROW(real_number(none), json::type_error) << none;
  EXPECT_THROW(real_number(-0.5, 0), json::out_of_range);
  EXPECT_THROW(real_number(2, 0, 1), json::out_of_range);
  EXPECT_THROW(real_number(no_number), json::out_of_range);
  EXPECT_EQ(whole_number(7, 7, 7), 7);
  EXPECT_THROW(whole_number(7, 8), json::out_of_range);
  EXPECT_THROW(whole_number(7, 0, 6), json::out_of_range);
}

const json start_line = json::parse(
    R"({"start":{"completed_steps":0,"host":"h","ranks":2,"layout":"2 ranks","device":"CPU","compute":"fp32",
        "parameters":3000,"tokens":64,"steps":4,"unix_time":1714564800,"version":"v","command":"c","tokenizer":"t",
        "tokenizer_name":"n","held_out":"h","data":[{"name":"d","content":"c","samples":9}],
        "memory_bytes":{"parameters":4096,"else":1024}}})");
const json evaluation_line =
    json::parse(R"({"step":2,"validation_loss":3.5,"bits_per_byte":2.0,"tokens_so_far":128,"seconds_since_start":6})");

json step_line(int step) {
  json line = json::parse(
      R"({"loss":5.5,"grad_norm":1.5,"learning_rate":0.001,"step_seconds":2,"tokens_per_second":32,"mfu":null,"ranks":2,
          "time":{"GEMM":1.5,"bubble":0.5},"memory_measured":{"resident":9000},"skipped":"not finite"})");
  line["step"] = step;
  line["tokens_so_far"] = 64 * step;
  line["seconds_since_start"] = 2 * step;
  line["samples"] = {4 * step - 4, 4 * step};
  return line;
}

class AlteredLines : public testing::Test {
 protected:
  // Puts each altered line, or one of so many, where it was among the others, and has it read: an Error names the file.
  void try_each(const std::function<void(const std::string& text)>& read, int64_t every = 1) {
    const std::vector<json> lines{start_line, step_line(1), step_line(2), evaluation_line, step_line(3), step_line(4)};
    int refused = 0, taken = 0, turn = 0;
    for (size_t i = 0; i < lines.size(); i++)
      for (const json& line : test::altered(lines[i])) {
        if (turn++ % every != 0) continue;
        std::string text;
        for (size_t k = 0; k < lines.size(); k++) text += json_text(k == i ? line : lines[k]) + "\n";
        const auto error = error_of([&] { read(text); });
        error ? refused++ : taken++;
        EXPECT_TRUE(!error || error->find("metrics.jsonl") != std::string::npos) << *error << "\n" << line;
      }
    EXPECT_GT(refused, 100 / every);
    EXPECT_GT(taken, 100 / every);
  }
  const test::Scratch scratch_;
};

TEST_F(AlteredLines, AreReportedOrRefused) {
  try_each([&](const std::string& text) {
    scratch_.write("run/metrics.jsonl", text);
    report_page({read_history(scratch_.path("run"))});
  });
}

TEST_F(AlteredLines, AreAuditedOrRefused) {
  const OrderRecord order{.step = 0,
                          .sample = 0,
                          .sources = {{.name = "x", .content = ""}},
                          .order = SampleOrder({10}, Blend({1}), true, 1)};
  try_each([&](const std::string& text) { audit(text, {{"c", 4, 16}}, {order}); });
  const auto line = [](const char* more) { return fmt::format("{{\"step\":1,\"loss\":1.0,{}}}\n", more); };
  const auto refused = [&](const char* more, const char* why) {
    EXPECT_ERROR(audit(line(more), {}, {order}), "metrics.jsonl, line 1", why);
  };
  refused("\"samples\":[0,9223372036854775807]", "a batch has at most 1000000000");
  refused("\"samples\":[-4,4]", "-4 is not from 0");
  refused("\"samples\":[0.5,4]", "0.5 is not a whole number");
  refused("\"samples\":[0]", "array index 1");
  refused("\"samples\":[0,4],\"ranks\":true", "boolean");
  EXPECT_ERROR(audit("[1]\n", {}, {order}), "metrics.jsonl, line 1", "is not an object");
  EXPECT_ERROR(audit("{\"start\":5}\n", {}, {order}), "metrics.jsonl, line 1");
  EXPECT_ERROR(audit("{\"step\":-1,\"samples\":[0,4]}\n", {}, {order}), "metrics.jsonl, line 1", "-1 is not from 0");
}

TEST_F(AlteredLines, CalibrateNothingOrAreRefused) {
  Config config = small_config();
  config.batch = {.sequence_length = 8, .global_batch_size = 8, .microbatch_size = 1};
  config.hardware = {.profile = MEGALITH_SOURCE_DIR "/configs/hardware/p4d.24xlarge.toml", .nodes = 1};
  scratch_.write("run/config.toml", to_toml(config));
  try_each(
      [&](const std::string& text) {
        scratch_.write("run/metrics.jsonl", text);
        try {
          read_runs({scratch_.path("run")});
        } catch (const Error& e) {
          // Ranks that the config has no layout for are refused where the plan is made.
          if (std::string_view(e.what()).find("metrics.jsonl") != std::string_view::npos) throw;
        }
      },
      taken("AlteredLines.CalibrateNothingOrAreRefused"));
  const auto refused = [&](const std::string& text, const char* line, const char* why) {
    scratch_.write("run/metrics.jsonl", text);
    EXPECT_ERROR(read_runs({scratch_.path("run")}), "run/metrics.jsonl", line, why);
  };
  refused("{\"step_seconds\":1,\"ranks\":2}\n{\"step_seconds\":\"1\"}\n", "line 2", "string is not a number");
  refused("{\"step_seconds\":-1,\"ranks\":2}\n", "line 1", "-1 is not from");
  refused("{\"step_seconds\":null,\"ranks\":2}\n", "line 1", "null is not a number");
  refused("{\"step_seconds\":1,\"ranks\":2.5}\n", "line 1", "2.5 is not a whole number");
  refused("{\"step_seconds\":1,\"ranks\":1000000000}\n", "line 1", "1000000000 is not from 0 to 65536");
  refused("{\"start\":[8]}\n", "line 1", "");
  refused("oops\n", "line 1", "");
}

TEST(KeptStep, IsUnderstoodOrRefused) {
  const test::Scratch scratch;
  const json good{{"step", 3}, {"loss", "nan"}, {"grad_norm", 1.5}, {"ranks", 2}, {"config", "[train]\n"}};
  const auto read = [&](const json& file) {
    scratch.write("bad-steps/step-00000003.json", json_text(file));
    return read_bad_step(scratch.path(""), 3);
  };
  ASSERT_TRUE(read(good));
  EXPECT_EQ(read(good)->ranks, 2);
  EXPECT_FALSE(read_bad_step(scratch.path(""), 4));
  const auto refused = [&](const char* key, const json& value, const char* why) {
    json file = good;
    file[key] = value;
    EXPECT_ERROR(read(file), "bad-steps/step-00000003.json", why, "remove it");
  };
  refused("step", 2, "is of step 2");
  refused("step", "3", "not a whole number");
  refused("loss", "many", "string is not a number");
  refused("grad_norm", {1}, "array is not a number");
  refused("ranks", 0, "0 is not from 1");
  refused("ranks", int64_t{1} << 40, "is not from 1");
  refused("config", 5, "number");
  for (const json& file : test::altered(good)) {
    const auto error = error_of([&] { read(file); });
    EXPECT_TRUE(!error || error->find("bad-steps/step-00000003.json") != std::string::npos) << *error;
  }
  scratch.write("bad-steps/step-00000003.json", "{\"step\":3");
  EXPECT_ERROR(read_bad_step(scratch.path(""), 3), "bad-steps/step-00000003.json is not valid");
}

}  // namespace
}  // namespace megalith
