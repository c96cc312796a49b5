// `megalith report`: what is read of a run folder, and the page that is made of it.
#include <cmath>

#include "tests/data/scratch.h"
#include "trainer/report/page.h"
#include "trainer/report/plot.h"

namespace megalith {
namespace {

const std::string start_line =
    "{\"start\":{\"completed_steps\":0,\"ranks\":2,\"layout\":\"2 ranks: shard "
    "2\",\"device\":\"CPU\",\"parameters\":3000,"
    "\"tokens\":64,\"memory_bytes\":{\"parameters\":4096,\"scratch\":1024}}}\n";

std::string step(int number, double loss, const std::string& more = "") {
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"grad_norm\":1.5,\"learning_rate\":0.001,\"tokens_so_far\":{},"
      "\"step_seconds\":2,\"tokens_per_second\":32,\"seconds_since_start\":{}{}}}\n",
      number, loss, 64 * number, 2 * number, more);
}

class Report : public testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& metrics) const {
    scratch_.write(name + "/metrics.jsonl", metrics);
    return scratch_.path(name);
  }
  const test::Scratch scratch_;
};

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
  EXPECT_EQ(h.held_out_loss, std::vector<double>{3.5});
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
  EXPECT_ERROR(read_history(scratch_.path("none")), "none is no run folder", "metrics.jsonl", "run.output");
  EXPECT_ERROR(read_history(run("empty", "")), "metrics.jsonl is empty", "train some steps");
  EXPECT_ERROR(read_history(run("idle", start_line)), "has no line of a step", "train some steps");
  EXPECT_ERROR(read_history(run("torn", start_line + step(1, 5) + "{\"step\":2,\"lo\n" + step(3, 4))),
               "torn/metrics.jsonl, line 3 ", "remove it");
  EXPECT_ERROR(read_history(run("typed", step(1, 5) + "{\"step\":\"two\"}\n")), "metrics.jsonl, line 2 ", "number");
  EXPECT_ERROR(read_history(run("array", "[1]\n")), "metrics.jsonl, line 1 ");
  EXPECT_ERROR(read_history(run("negative", step(-1, 5))), "metrics.jsonl, line 1 ", "-1 is not from 0");
  EXPECT_ERROR(read_history(run("huge", step(1, 1e200))), "metrics.jsonl, line 1 ", "1e+200 is not from -1e+100");
  EXPECT_ERROR(read_history(run("yes", step(1, 5, ",\"mfu\":true"))), "metrics.jsonl, line 1 ", "boolean is no number");
  EXPECT_ERROR(read_history(run("list", step(1, 5, ",\"time\":[1]"))), "metrics.jsonl, line 1 ", "array is no object");
  std::string accounts;
  for (int i = 0; i < 200; i++) accounts += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
  EXPECT_ERROR(read_history(run("many", step(1, 5, ",\"time\":{" + accounts + "}"))),
               "metrics.jsonl, line 1: ", "200 things", "at most 100");
  EXPECT_EQ(read_history(run("dying", step(1, 5) + "{\"step\":2,\"lo")).loss.size(), 1u) << "the last may be cut";
}

TEST_F(Report, ThePageNeedsNothingElse) {
  const std::string page = report_page({read_history(run("a", start_line + step(1, 5) + step(2, 4)))});
  for (const char* elsewhere : {"http:", "https:", "src=", "url(", "@import", "<link"})
    EXPECT_EQ(page.find(elsewhere), std::string::npos) << elsewhere;
  EXPECT_EQ(page.find("{{"), std::string::npos) << "nothing of the template is left";
  for (const char* word : {"Loss", "Gradient norm", "Learning rate", "tokens a second", "prefers-color-scheme",
                           "by-tokens", "by-time", "2 ranks: shard 2"})
    EXPECT_NE(page.find(word), std::string::npos) << word;
  EXPECT_EQ(page.find("Held-out"), std::string::npos) << "there was no evaluation";
  EXPECT_EQ(page.find("Where the time went"), std::string::npos) << "no step says";
}

TEST_F(Report, RunsAreCompared) {
  scratch_.write("x/run/config.toml", "");
  const std::string a = run("x/run", start_line + step(1, 5) + step(2, 4, ",\"time\":{\"GEMM\":1}"));
  const std::string b = run("y/run", start_line + step(1, 5) + step(2, 3));
  const std::string page = report_page({read_history(a), read_history(b)});
  EXPECT_NE(page.find("x/run and y/run"), std::string::npos) << "as much of the names as tells them apart";
  EXPECT_NE(page.find("2 runs compared"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"best\">3.0"), std::string::npos) << "the lower loss";
  EXPECT_NE(page.find("Where the time went"), std::string::npos);
  // A line for each run, axis and plot.
  int lines = 0;
  for (size_t at = 0; (at = page.find("<polyline class=\"line line-1\"", at)) != std::string::npos; at++) lines++;
  EXPECT_EQ(lines, 3 * 4);
}

// As on GPUs, and of a run whose first steps are another's.
TEST_F(Report, StepsThatSayNothingOfTheirTimeDoNotDiluteIt) {
  std::string lines = start_line;
  for (int i = 161; i <= 400; i++) lines += step(i, 4, i % 20 == 0 ? ",\"time\":{\"GEMM\":2}" : "");
  const History h = read_history(run("gpu", lines));
  EXPECT_EQ(h.time.at("GEMM"), std::vector<double>(12, 2.0));
  const std::string page = report_page({h});
  // Two seconds from step 160 of 400 on, 4 % below the upper edge.
  EXPECT_NE(page.find("<path class=\"area-0\" d=\"M400 38.462H450L450 38.462H500L"), std::string::npos)
      << page.substr(page.find("class=\"area-0\""), 100);
}

// A run of the times of its steps.
std::string timed(const std::vector<std::string>& times) {
  std::string lines = start_line;
  for (size_t i = 0; i < times.size(); i++)
    lines += step(static_cast<int>(i + 1), 4, fmt::format(",\"time\":{{{}}}", times[i]));
  return lines;
}

TEST_F(Report, APartOfTheTimeHasOneColourInAllRuns) {
  const std::string page =
      report_page({read_history(run("a", timed({R"("GEMM":3,"gathers":1)", R"("GEMM":3,"gathers":1)"}))),
                   read_history(run("b", timed({R"("attention":2,"GEMM":1)", R"("attention":2,"GEMM":1)"})))});
  const auto times = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) n++;
    return n;
  };
  EXPECT_EQ(times("<i class=\"area-0\"></i>GEMM<b>75.0 %</b>"), 1u);
  EXPECT_EQ(times("<i class=\"area-0\"></i>GEMM<b>33.3 %</b>"), 1u);
  EXPECT_EQ(times("<i class=\"area-1\"></i>attention<b>66.7 %</b>"), 1u);
  EXPECT_EQ(times("<i class=\"area-2\"></i>gathers<b>25.0 %</b>"), 1u);
  // And a second one height: the first run's four are the most, 4 % below the upper edge.
  EXPECT_EQ(times("<path class=\"area-0\" d=\"M0 278.85H"), 1u);
  EXPECT_EQ(times("<path class=\"area-0\" d=\"M0 759.62H"), 1u);
  EXPECT_EQ(times("Cut off above"), 0u);
}

TEST_F(Report, AnEvaluationDoesNotFlattenTheSteps) {
  std::vector<std::string> times(400, R"("GEMM":2)");
  times[99] = R"("GEMM":2,"evaluation":100)";
  const std::string page = report_page({read_history(run("a", timed(times)))});
  // A third beyond two seconds, and 4 % above that.
  EXPECT_NE(page.find("<path class=\"area-0\" d=\"M0 260.36H"), std::string::npos);
  EXPECT_NE(page.find("Cut off above; the highest reaches 35.3 s."), std::string::npos);
  EXPECT_NE(page.find("evaluation<b>11.1 %</b>"), std::string::npos) << "it counts as before";
}

TEST_F(Report, PartsBeyondTheColoursAreOne) {
  const auto page_of = [&](int parts) {
    std::string time;
    for (int i = 1; i <= parts; i++) time += fmt::format("{}\"part {}\":{}", i > 1 ? "," : "", i, parts + 1 - i);
    return report_page({read_history(run(fmt::format("of{}", parts), timed({time, time})))});
  };
  EXPECT_NE(page_of(8).find("<i class=\"area-7\"></i>part 8<b>2.8 %</b>"), std::string::npos);
  EXPECT_NE(page_of(9).find("<i class=\"area-7\"></i>all else<b>6.7 %</b>"), std::string::npos);
}

TEST_F(Report, NamesCannotBreakThePage) {
  const std::string page = report_page({read_history(run("<b onload='x'>&", start_line + step(1, 5) + step(2, 4)))});
  EXPECT_EQ(page.find("<b onload"), std::string::npos);
  EXPECT_NE(page.find("&lt;b onload=&#39;x&#39;&gt;&amp;"), std::string::npos);
}

TEST(Ticks, AreEasyToRead) {
  EXPECT_EQ(ticks(0, 160, 4, false), (std::vector<double>{0, 50, 100, 150}));
  EXPECT_EQ(ticks(4.8, 8.9, 5, false), (std::vector<double>{5, 6, 7, 8}));
  EXPECT_EQ(ticks(0.5, 30, 5, true), (std::vector<double>{0.5, 1, 2, 5, 10, 20}));
  EXPECT_EQ(ticks(1e-3, 1e6, 5, true).size(), 5u);
  EXPECT_TRUE(ticks(1, 1, 5, false).empty());
}

TEST(ShortNumbers, HaveThreeDigits) {
  EXPECT_EQ(short_number(0.002), "0.002");
  EXPECT_EQ(short_number(1500), "1500");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(999999), "1M");
  EXPECT_EQ(short_number(4273664), "4.27M");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(5000, 15000), "5k") << "as its neighbours on an axis";
  EXPECT_EQ(short_number(0, 15000), "0");
}

}  // namespace
}  // namespace megalith
