// The page of `megalith report` as a browser shows it: tables, facts and bars.
#include <cstdlib>
#include <set>

#include "tests/pure/report_runs.h"

namespace megalith {
namespace {

using test::evaluated;
using test::step;

// Debian's chromium runs the page's scripts.
class ReportInABrowser : public test::ReportOfMetrics {
 protected:
  void SetUp() override {
    if (std::system("chromium --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no chromium";
  }
  // Returns the page as the browser has it in the end.
  std::string shown(std::vector<History> runs) const {
    const std::string page = scratch_.write("page.html", report_page(std::move(runs))),
                      out = scratch_.path("shown.html");
    EXPECT_EQ(std::system(fmt::format("HOME='{0}' chromium --headless --no-sandbox --disable-gpu --dump-dom "
                                      "--user-data-dir='{0}/browser' 'file://{1}' >'{2}' 2>/dev/null",
                                      scratch_.path(""), page, out)
                              .c_str()),
              0);
    const std::string all = read_file(out);
    return all.substr(all.find("<body"), all.find("<script type") - all.find("<body"));
  }
};

TEST_F(ReportInABrowser, ShowsARunInWords) {
  scratch_.write("a/config.toml", "model.layers = 3\n");
  scratch_.write("a/log.txt",
                 "2024-05-01 12:00:00 megalith\n2024-05-01 12:00:01 warning: the disk is <full>\nand slow\n"
                 "2024-05-01 12:00:09 ended: SIGTERM on rank 0\n");
  const std::string start =
      "{\"start\":{\"completed_steps\":0,\"steps\":4000,\"unix_time\":1714564800,\"version\":\"megalith "
      "1\",\"parameters\":"
      "4273664,\"memory_bytes\":{\"parameters\":4194304,\"scratch\":3221225472},\"command\":\"megalith train 'a "
      "b.toml'\",\"data\":[{\"name\":\"c.bin\",\"content\":\"9 bytes\",\"share\":1,\"samples\":80}],\"held_out\":\"7 "
      "bytes\"}}\n";
  std::string metrics = start + step(1, 5);
  for (int i = 2; i <= 120; i++)
    metrics += step(i, 4, i == 2 ? ",\"samples\":[20,40]" : "") +
               fmt::format("{{\"step\":{0},\"texts\":[{{\"prompt\":\"It <was\",\"text\":\" text-{0}.\"}}]}}\n", i);
  History h = read_history(run("a", metrics + "{\"step\":2,\"validation_loss\":3.0,\"unix_time\":1714564920}\n"));
  h.prompt = "Once";
  h.continuation = " upon & a time";
  const std::string page = shown({h});
  for (const char* words : {"<b class=\"bad\">ended: SIGTERM on rank 0</b>",
                            "1 warning<",
                            "the disk is &lt;full&gt;\nand slow",
                            "2024-05-01 12:00 UTC to 2024-05-01 12:02 UTC",
                            "4.27M parameters",
                            "<code>megalith train 'a b.toml'</code>",
                            "<code>c.bin</code>: 9 bytes, 80 samples an epoch",
                            "7 bytes",
                            "<b>Once</b> upon &amp; a time",
                            "<b>model.layers = 3</b>",
                            "model.heads = 12",
                            "of 4,000",
                            "0.5 epochs",
                            "<dt>Perplexity</dt><dd>20.09",
                            "<dt>Tokens</dt><dd>7680<",
                            "parameters: 4.0 MiB",
                            "3.00 GiB",
                            "<small>step 120</small> <b>It &lt;was</b> text-120.",
                            "118 texts before, 49 shown",
                            "Gradient norm",
                            "tokens a second"})
    EXPECT_NE(page.find(words), std::string::npos) << words;
  EXPECT_EQ(page.find("Validation bits"), std::string::npos);
}

TEST_F(ReportInABrowser, ComparesRuns) {
  const auto best = [](const std::string& page, const char* figure) {
    const std::string cell = fmt::format("<td class=\"best\"><span>{}</span>", figure);
    const size_t at = page.find(cell);
    return at == std::string::npos ? "" : page.substr(at + cell.size(), 6);
  };
  const auto of = [&](const std::string& other, const char* validation) {
    return shown({read_history(run("a", evaluated("x", 4, 2))), read_history(run(validation, evaluated(other, 5, 1)))});
  };
  const std::string one = of("x", "b"), two = of("y", "<i onload='x'>&");
  EXPECT_EQ(best(one, "Validation loss"), "4.0000");
  EXPECT_EQ(best(one, "Bits per byte"), "1.0000");
  EXPECT_EQ(best(two, "Validation loss"), "") << "tokens of two kinds are not compared";
  EXPECT_EQ(best(two, "Bits per byte"), "1.0000");
  EXPECT_NE(one.find("b and a"), std::string::npos);
  EXPECT_NE(one.find("2 runs compared"), std::string::npos);
  EXPECT_EQ(one.find("These runs have"), std::string::npos);
  EXPECT_NE(two.find("These runs have 2 tokenizers."), std::string::npos);
  EXPECT_NE(two.find("&lt;i onload='x'&gt;&amp;"), std::string::npos);
}

TEST_F(ReportInABrowser, NotesThatHeldOutTextsDiffer) {
  for (const char* other : {"9 bytes", "8 bytes"}) {
    std::vector<History> runs;
    for (const char* validation : {"9 bytes", other})
      runs.push_back(
          read_history(run(validation, fmt::format("{{\"start\":{{\"tokenizer\":\"x\",\"held_out\":\"{}\"}}}}\n{}",
                                                   validation, step(1, 5)))));
    const bool noted = shown(runs).find("have different tokens in data.validation") != std::string::npos;
    EXPECT_EQ(noted, other == std::string("8 bytes"));
  }
}

TEST_F(ReportInABrowser, ManyRunsHaveLinesOfTheirOwn) {
  std::vector<History> runs;
  runs.reserve(36);
  for (int i = 0; i < 36; i++) runs.push_back(read_history(run(fmt::format("r{}", i), step(1, 5))));
  const std::string page = shown(runs);
  std::set<std::string> lines;
  const std::string mark = "<th><i class=\"";
  for (size_t at = 0; (at = page.find(mark, at)) != std::string::npos; at++)
    lines.insert(page.substr(at + mark.size(), page.find('"', at + mark.size()) - at - mark.size()));
  EXPECT_EQ(lines.size(), 36u);
}

}  // namespace
}  // namespace megalith
