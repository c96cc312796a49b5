// `megalith report`: what is read of a run folder, and the page that is made of it.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/system/json.h"
#include "tests/pure/report_runs.h"
#include "trainer/report/sections.h"

namespace megalith {
namespace {

using test::evaluated;
using test::start_line;
using test::step;
using Report = test::ReportOfMetrics;

TEST_F(Report, ReadsStepsEvaluationsAndStarts) {
  const std::string second = "{\"start\":{\"completed_steps\":2,\"ranks\":4,\"tokens\":64}}\n";
  const History h = read_history(run(
      "a", start_line + step(1, 5, ",\"time\":{\"GEMM\":1.5}") + step(2, 4, ",\"time\":{\"GEMM\":1,\"bubble\":0.5}") +
               "{\"step\":2,\"validation_loss\":3.5,\"bits_per_byte\":2.0,\"tokens_so_far\":128,"
               "\"seconds_since_start\":6}\n" +
               second +
               "{\"step\":3,\"loss\":null,\"grad_norm\":9,\"learning_rate\":0.001,\"tokens_so_far\":192,"
               "\"tokens_per_second\":64,\"seconds_since_start\":2,\"skipped\":\"not finite\","
               "\"memory_measured\":{\"resident\":9000}}\n"));
  EXPECT_EQ(h.steps.step, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(h.steps.tokens, (std::vector<double>{64, 128, 192}));
  EXPECT_EQ(h.steps.hours, (std::vector<double>{2 / 3600.0, 4 / 3600.0, 8 / 3600.0}))
      << "without what is between starts";
  EXPECT_EQ(h.loss[1], 4);
  EXPECT_TRUE(std::isnan(h.loss[2]));
  EXPECT_EQ(h.skipped, std::vector<size_t>{2});
  EXPECT_EQ(h.resumed, std::vector<size_t>{2});
  EXPECT_EQ(h.ranks, 4);
  EXPECT_EQ(h.parameters, 3000);
  EXPECT_EQ(h.evaluations.hours, std::vector<double>{6 / 3600.0});
  EXPECT_EQ(h.validation_loss, std::vector<double>{3.5});
  EXPECT_EQ(h.time.at("GEMM"), (std::vector<double>{1.5, 1}));
  EXPECT_EQ(h.time.at("bubble"), (std::vector<double>{0, 0.5}));
  EXPECT_EQ(h.timed_steps, (std::vector<double>{1, 2})) << "the third says nothing of its time";
  ASSERT_EQ(h.measured_memory.size(), 1u);
  EXPECT_EQ(h.measured_memory[0].second, 9000);
  EXPECT_NE(h.settings_unknown.find("config.toml"), std::string::npos);
}

// From before there were starts: each step says what is constant, and no time of day.
TEST_F(Report, ReadsOlderFiles) {
  std::string lines;
  for (int i = 1; i <= 3; i++)
    lines += fmt::format(
        "{{\"step\":{},\"loss\":4,\"ranks\":8,\"tokens\":100,\"step_seconds\":3.0,"
        "\"memory_bytes\":{{\"saved\":5}}}}\n",
        i);
  const History h = read_history(run("old", lines + "{\"step\":3,\"validation_loss\":1.0}\n"));
  EXPECT_EQ(h.steps.tokens, (std::vector<double>{100, 200, 300}));
  EXPECT_DOUBLE_EQ(h.steps.hours[2], 9 / 3600.0);
  EXPECT_EQ(h.evaluations.tokens, std::vector<double>{300});
  EXPECT_EQ(h.ranks, 8);
  EXPECT_EQ(h.planned_memory, (std::vector<std::pair<std::string, double>>{{"saved", 5}}));
}

TEST_F(Report, WhatCannotBeReadIsNamed) {
  EXPECT_ERROR(read_history(scratch_.path("none")), "none is not a run folder", "metrics.jsonl", "run.output");
  EXPECT_ERROR(read_history(run("empty", "")), "metrics.jsonl is empty", "train some steps");
  EXPECT_ERROR(read_history(run("idle", start_line)), "has no line of a step", "train some steps");
  EXPECT_ERROR(read_history(run("torn", start_line + step(1, 5) + "{\"step\":2,\"lo\n" + step(3, 4))),
               "torn/metrics.jsonl, line 3 ", "remove the line");
  EXPECT_ERROR(read_history(run("typed", step(1, 5) + "{\"step\":\"two\"}\n")), "metrics.jsonl, line 2 ", "number");
  EXPECT_ERROR(read_history(run("array", "[1]\n")), "metrics.jsonl, line 1 ");
  EXPECT_ERROR(read_history(run("negative", step(-1, 5))), "metrics.jsonl, line 1 ", "-1 is not from 0");
  EXPECT_ERROR(read_history(run("huge", step(1, 1e200))), "metrics.jsonl, line 1 ", "1e+200 is not from -1e+100");
  EXPECT_ERROR(read_history(run("yes", step(1, 5, ",\"mfu\":true"))), "metrics.jsonl, line 1 ",
               "boolean is not a number");
  EXPECT_ERROR(read_history(run("list", step(1, 5, ",\"time\":[1]"))), "metrics.jsonl, line 1 ",
               "array is not an object");
  std::string accounts;
  for (int i = 0; i < 200; i++) accounts += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
  EXPECT_ERROR(read_history(run("many", step(1, 5, ",\"time\":{" + accounts + "}"))),
               "metrics.jsonl, line 1: ", "200 parts", "at most 100");
  EXPECT_EQ(read_history(run("dying", step(1, 5) + "{\"step\":2,\"lo")).loss.size(), 1u) << "the last may be cut";
}

// Returns what the page's scripts draw.
nlohmann::json drawn(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  return parse_json(page.substr(at, page.find("</script>", at) - at));
}

TEST_F(Report, ThePageNeedsNothingElse) {
  const std::string page = report_page({read_history(run("a", start_line + step(1, 5) + step(2, 4)))});
  for (const char* elsewhere : {"http:", "https:", "src=", "url(", "@import", "<link"})
    EXPECT_EQ(page.find(elsewhere), std::string::npos) << elsewhere;
  EXPECT_EQ(page.find("{{"), std::string::npos) << "nothing of the template is left";
  const nlohmann::json data = drawn(page);
  EXPECT_EQ(data.at("runs").at(0).at("layout"), "2 ranks: shard 2");
  EXPECT_TRUE(data.at("runs").at(0).at("summary").at("validation").is_null()) << "there was no evaluation";
  EXPECT_EQ(data.at("plots").size(), 4u) << "those that have a value";
  EXPECT_EQ(data.at("time").size(), 0u) << "no step says";
  EXPECT_EQ(data.at("runs").at(0).at("values").at("Loss").at("mean"), nlohmann::json({5, 4}));
  EXPECT_EQ(data.at("runs").at(0).at("steps").at("tokens"), nlohmann::json({64, 128}));
}

TEST_F(Report, SaysWhatARunWas) {
  scratch_.write("a/config.toml", "model.layers = 3\n");
  scratch_.write("a/log.txt",
                 "2024-05-01 12:00:00 megalith\n2024-05-01 12:00:01 warning: the disk is <full>\nand slow\n"
                 "2024-05-01 12:00:09 ended: SIGTERM on rank 0\n");
  const std::string start =
      "{\"start\":{\"completed_steps\":0,\"steps\":400,\"unix_time\":1714564800,\"version\":\"megalith 1, commit abc\","
      "\"command\":\"megalith train 'a b.toml'\",\"tokenizer\":\"ff00\",\"tokenizer_name\":\"gpt2 (50257 ids, hash "
      "ff00)\",\"data\":[{\"name\":\"c.bin\",\"content\":\"9 bytes, hash 1\",\"share\":1,\"samples\":80}],\"held_out\":"
      "\"7 bytes, hash 2\"}}\n";
  const std::string evaluation = "{\"step\":2,\"validation_loss\":3.0,\"unix_time\":1714564920}\n";
  History h = read_history(run("a", start + step(1, 5) + step(2, 4, ",\"samples\":[20,40]") + evaluation));
  h.prompt = "Once";
  h.continuation = " upon & a time";
  const nlohmann::json said = drawn(report_page({h})).at("runs").at(0), summary = said.at("summary");
  EXPECT_EQ(said.at("end"), nlohmann::json::parse(R"({"kind": "ended", "words": "ended: SIGTERM on rank 0",
      "warnings": 1, "shown": ["2024-05-01 12:00:01 the disk is <full>\nand slow"]})"));
  EXPECT_EQ(said.at("command"), "megalith train 'a b.toml'");
  EXPECT_EQ(said.at("tokenizerName"), "gpt2 (50257 ids, hash ff00)");
  EXPECT_EQ(said.at("data").at(0).at("samples"), 80);
  EXPECT_EQ(said.at("last").get<double>() - said.at("began").get<double>(), 120);
  EXPECT_EQ(summary.at("planned"), 400);
  EXPECT_EQ(summary.at("samples").get<double>() / summary.at("epoch").get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(summary.at("perplexity").get<double>(), std::exp(3.0));
  const auto setting = [&](const char* key) {
    for (const nlohmann::json& one : said.at("settings"))
      if (one.at(0) == key) return one;
    return nlohmann::json();
  };
  EXPECT_EQ(setting("model.layers"), nlohmann::json({"model.layers", "3", false})) << "not the default";
  EXPECT_EQ(setting("model.heads"), nlohmann::json({"model.heads", "12", true}));
}

TEST_F(Report, SaysHowARunEnded) {
  const auto end = [&](const std::string& log) { return read_run_log(scratch_.write("log.txt", log)).end; };
  EXPECT_EQ(end("2024-05-01 12:00:00 done: 4 steps\n"), RunLog::End::done);
  EXPECT_EQ(end("2024-05-01 12:00:00 ended: a fault\n"), RunLog::End::ended);
  EXPECT_EQ(end("2024-05-01 12:00:00 done: 4 steps\n2024-05-01 12:01:00 step 5\n"), RunLog::End::open) << "resumed";
  EXPECT_EQ(end("2024-05-01 12:00:00 step 5\nended: is a line of what was said\n"), RunLog::End::open);
  EXPECT_EQ(end("short\n"), RunLog::End::open);
  EXPECT_EQ(read_run_log(scratch_.path("none.txt")).end, RunLog::End::unknown);
}

TEST_F(Report, RunsAreRowsAndTheBestIsFirst) {
  std::vector<History> runs;
  for (const auto& [name, bits] : {std::pair("b", 2.0), {"a", 1.5}, {"c", 1.75}})
    runs.push_back(read_history(run(name, evaluated("x", 2 * bits, bits))));
  runs.push_back(read_history(run("none", start_line + step(1, 1))));
  std::vector<std::string> names;
  const nlohmann::json data = drawn(report_page(runs));
  for (const nlohmann::json& one : data.at("runs")) names.push_back(one.at("name"));
  EXPECT_EQ(names, (std::vector<std::string>{"a", "c", "b", "none"}));
}

TEST_F(Report, ShowsWhatTheModelWroteTheNewestFirst) {
  std::string metrics = start_line;
  for (int i = 1; i <= 120; i++)
    metrics += step(i, 2) + fmt::format(
                                "{{\"step\":{0},\"texts\":[{{\"prompt\":\"It <was\",\"text\":\" text-{0}.\"}},"
                                "{{\"prompt\":\"\",\"text\":\"other-{0}.\"}}]}}\n",
                                i);
  const History history = read_history(run("a", metrics));
  EXPECT_EQ(history.loss.size(), 120u) << "texts are no steps";
  ASSERT_EQ(history.texts.size(), 240u);
  const nlohmann::json prompts = drawn(report_page({history})).at("runs").at(0).at("texts");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts.at(0).at("prompt"), "It <was");
  EXPECT_EQ(prompts.at(0).at("all"), 120);
  const nlohmann::json& texts = prompts.at(0).at("texts");
  EXPECT_EQ(texts.size(), 50u);
  EXPECT_EQ(texts.back(), nlohmann::json({{"step", 120}, {"text", " text-120."}}));
  EXPECT_EQ(texts.front().at("text"), " text-1.") << "the first is never left out";
  EXPECT_EQ(drawn(report_page({read_history(run("b", start_line + step(1, 2)))})).at("runs").at(0).at("texts").size(),
            0u);
}

TEST_F(Report, LossesUnderDifferentTokenizersAreNotCompared) {
  const auto page_of = [&](const std::string& other) {
    return report_page({read_history(run("a", evaluated("x", 4, 2))), read_history(run("b", evaluated(other, 5, 1)))});
  };
  const std::string one = page_of("x"), two = page_of("y");
  const auto runs_by_plot = [](const std::string& page, const std::string& title) {
    nlohmann::json found = nlohmann::json::array();
    const nlohmann::json data = drawn(page);
    for (const nlohmann::json& plot : data.at("plots"))
      if (plot.at("title") == title) found.push_back(plot.at("runs"));
    return found;
  };
  EXPECT_EQ(runs_by_plot(one, "Loss"), nlohmann::json::parse("[[0,1]]"));
  EXPECT_EQ(runs_by_plot(two, "Loss"), nlohmann::json::parse("[[0],[1]]"));
  EXPECT_EQ(runs_by_plot(two, "Validation loss"), nlohmann::json::parse("[[0],[1]]"));
  EXPECT_EQ(runs_by_plot(two, "Validation bits per byte"), nlohmann::json::parse("[[0,1]]"));
}

TEST_F(Report, TheStylesHaveEachColour) {
  for (int c = 0; c < num_colours; c++)
    EXPECT_NE(std::string(page_css).find(fmt::format(".line-{}, .area-{} {{", c, c)), std::string::npos) << c;
}

TEST_F(Report, RunsAreCompared) {
  scratch_.write("x/run/config.toml", "");
  const std::string a = run("x/run", start_line + step(1, 5) + step(2, 4, ",\"time\":{\"GEMM\":1}"));
  const std::string b = run("y/run", start_line + step(1, 5) + step(2, 3));
  const std::string page = report_page({read_history(a), read_history(b)});
  const nlohmann::json data = drawn(page);
  EXPECT_EQ(data.at("runs").at(0).at("name"), "x/run") << "as much of the names as tells them apart";
  EXPECT_EQ(data.at("time").size(), 1u);
  for (const nlohmann::json& plot : data.at("plots")) EXPECT_EQ(plot.at("runs"), nlohmann::json({0, 1}));
}

// As on GPUs, and of a run whose first steps are another's.
TEST_F(Report, StepsThatSayNothingOfTheirTimeDoNotDiluteIt) {
  std::string lines = start_line;
  for (int i = 161; i <= 400; i++) lines += step(i, 4, i % 20 == 0 ? ",\"time\":{\"GEMM\":2}" : "");
  const History h = read_history(run("gpu", lines));
  EXPECT_EQ(h.time.at("GEMM"), std::vector<double>(12, 2.0));
  const nlohmann::json time = drawn(report_page({h})).at("time").at(0);
  // Two seconds from step 160 of 400 on.
  EXPECT_EQ(time.at("edges"), nlohmann::json({160, 180, 200, 220, 240, 260, 280, 300, 320, 340, 360, 380, 400}));
  EXPECT_EQ(time.at("layers").at(0).at("seconds"), nlohmann::json(std::vector<int>(12, 2)));
}

// A run of the times of its steps.
std::string timed(const std::vector<std::string>& times) {
  std::string lines = start_line;
  for (size_t i = 0; i < times.size(); i++)
    lines += step(static_cast<int>(i + 1), 4, fmt::format(",\"time\":{{{}}}", times[i]));
  return lines;
}

// "NAME COLOUR SHARE" of each part of a run's time.
std::vector<std::string> parts_of(const nlohmann::json& time) {
  std::vector<std::string> parts;
  for (const nlohmann::json& layer : time.at("layers"))
    parts.push_back(fmt::format("{} {} {:.3f}", layer.at("name").get<std::string>(), layer.at("colour").get<int>(),
                                layer.at("share").get<double>()));
  return parts;
}

TEST_F(Report, APartOfTheTimeHasOneColourInAllRuns) {
  const nlohmann::json time =
      drawn(report_page({read_history(run("a", timed({R"("GEMM":3,"gathers":1)", R"("GEMM":3,"gathers":1)"}))),
                         read_history(run("b", timed({R"("attention":2,"GEMM":1)", R"("attention":2,"GEMM":1)"})))}))
          .at("time");
  EXPECT_EQ(parts_of(time.at(0)), (std::vector<std::string>{"GEMM 0 0.750", "gathers 2 0.250"}));
  EXPECT_EQ(parts_of(time.at(1)), (std::vector<std::string>{"GEMM 0 0.333", "attention 1 0.667"}));
  // And a second one height: the first run's four are the most.
  for (const nlohmann::json& of_run : time) EXPECT_EQ(of_run.at("top"), 4);
}

TEST_F(Report, AnEvaluationDoesNotFlattenTheSteps) {
  std::vector<std::string> times(400, R"("GEMM":2)");
  times[99] = R"("GEMM":2,"evaluation":100)";
  const nlohmann::json time = drawn(report_page({read_history(run("a", timed(times)))})).at("time").at(0);
  EXPECT_DOUBLE_EQ(time.at("top").get<double>(), 1.3 * 2) << "a third beyond two seconds";
  EXPECT_NEAR(time.at("highest").get<double>(), 35.3, 0.1);
  EXPECT_EQ(parts_of(time).at(1), "evaluation 1 0.111") << "it counts as before";
}

TEST_F(Report, PartsBeyondTheColoursAreOne) {
  const auto last_of = [&](int parts) {
    std::string time;
    for (int i = 1; i <= parts; i++) time += fmt::format("{}\"part {}\":{}", i > 1 ? "," : "", i, parts + 1 - i);
    return parts_of(drawn(report_page({read_history(run(fmt::format("of{}", parts), timed({time, time})))}))
                        .at("time")
                        .at(0))
        .back();
  };
  EXPECT_EQ(last_of(12), "part 12 11 0.013");
  EXPECT_EQ(last_of(13), "all else 11 0.033");
}

TEST_F(Report, NamesCannotBreakThePage) {
  const std::string page = report_page({read_history(run("<b onload='x'>&", start_line + step(1, 5) + step(2, 4))),
                                        read_history(run("</script>\xff", start_line + step(1, 5)))});
  EXPECT_EQ(page.find("<b onload"), std::string::npos);
  EXPECT_EQ(drawn(page).at("runs").size(), 2u) << "no name ends the script";
}

}  // namespace
}  // namespace megalith
