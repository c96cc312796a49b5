// `megalith report` of runs that were trained, and its page in a browser, where there is one.
#include <filesystem>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

// Two short runs, on bytes.
class ReportOfRuns : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new Scratch;
    std::string text;
    for (int i = 0; i < 400; i++) text += "the old king sold the gate, and nobody saw it. ";
    write_file(*scratch_ / "text.txt", text);
    write_file(*scratch_ / "config.toml",
               "[model]\nlayers = 1\nhidden = 16\nheads = 2\ncontext = 16\n[data]\ntrain = \"data/train.bin\"\n"
               "validation = \"data/validation.bin\"\n[batch]\nglobal_batch_size = 4\n[optimizer]\nwarmup_steps = 2\n"
               "[train]\nsteps = 40\nevaluate_every = 10\nevaluate_batches = 2\n[run]\noutput = \"slow\"\n");
    succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data"}), *scratch_);
    train(scratch_->folder(), 1, {"optimizer.learning_rate=1e-4"});
    train(scratch_->folder(), 1, {"optimizer.learning_rate=1e-2", "run.output=the fast"});
    succeed(megalith({"report", "slow", "the fast", "--out", "both.html"}), *scratch_);
  }
  static void TearDownTestSuite() {
    delete scratch_;
    scratch_ = nullptr;
  }
  static bool has_browser() { return run({"chromium", "--version"}, scratch_->folder()).status == 0; }
  // The page as the browser has it after its scripts, in a view.
  static std::string seen(const std::string& view, const char* page = "both.html") {
    return succeed({"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                    "file://" + *scratch_ / page + "#" + view},
                   *scratch_)
        .out;
  }
  static Scratch* scratch_;
};
Scratch* ReportOfRuns::scratch_ = nullptr;

TEST_F(ReportOfRuns, says_what_was_trained_on_what_by_which_command) {
  succeed(megalith({"report", "the fast", "--prompt", "the old", "--out", "one.html"}), *scratch_);
  if (!has_browser()) GTEST_SKIP() << "there is no chromium";
  const std::string page = seen("", "one.html");
  const nlohmann::json start = read_starts(*scratch_ / "the fast").at(0);
  EXPECT_NE(start.at("command").get<std::string>().find(
                "train config.toml optimizer.learning_rate=1e-2 'run.output=the fast'"),
            std::string::npos)
      << start;
  EXPECT_EQ(start.at("data").at(0).at("name"), "data/train.bin") << start;
  for (const std::string& words :
       {std::string("'run.output=the fast'</code>"), start.at("version").get<std::string>(),
        start.at("tokenizer_name").get<std::string>(), start.at("held_out").get<std::string>(),
        start.at("data").at(0).at("content").get<std::string>(), std::string("done: 40 steps"),
        std::string("<dt>Warnings</dt><dd>none"), std::string("<b>the old</b>"), std::string("Perplexity"),
        std::string("<b>optimizer.learning_rate = 0.01</b>")})
    EXPECT_NE(page.find(words), std::string::npos) << words;
}

TEST_F(ReportOfRuns, the_better_run_is_the_first_row) {
  if (!has_browser()) GTEST_SKIP() << "there is no chromium";
  const std::string page = seen("");
  EXPECT_LT(page.find("</i>the fast</th>"), page.find("</i>slow</th>"));
  EXPECT_NE(page.find("<h1 id=\"title\">the fast and slow</h1>"), std::string::npos);
  EXPECT_NE(page.find("optimizer.<wbr>learning_<wbr>rate"), std::string::npos) << "a setting in which they differ";
  EXPECT_EQ(page.find("run.<wbr>output"), std::string::npos) << "of course it differs";
}

TEST_F(ReportOfRuns, the_arithmetic_of_plots) {
  if (run({"node", "--version"}, scratch_->folder()).status != 0) GTEST_SKIP() << "there is no node";
  succeed({"node", MEGALITH_SOURCE_DIR "/tests/end_to_end/report_curves.js",
           MEGALITH_SOURCE_DIR "/trainer/report/words.js", MEGALITH_SOURCE_DIR "/trainer/report/curves.js"},
          *scratch_);
}

TEST_F(ReportOfRuns, a_browser_draws_each_view) {
  if (!has_browser()) GTEST_SKIP() << "there is no chromium";
  const std::string first = seen("");
  EXPECT_EQ(count(first, "<figure class=\"plot"), 6u + 2u) << "plots, and where the time of each run went";
  EXPECT_EQ(count(first, "<polyline class=\"line line-0\""), 6u);
  EXPECT_EQ(count(first, "<polyline class=\"line line-1\""), 6u);
  const char* logarithmic = "aria-pressed=\"true\" title";
  EXPECT_EQ(count(first, logarithmic), 0u);

  const std::string hidden = seen("hide=1&log=Loss&over=tokens");
  EXPECT_EQ(count(hidden, "<polyline class=\"line line-0\""), 6u);
  EXPECT_EQ(count(hidden, "<polyline class=\"line line-1\""), 0u);
  EXPECT_EQ(count(hidden, logarithmic), 1u);
  EXPECT_EQ(count(hidden, "<div class=\"unit\">tokens</div>"), 6u);

  const std::string range = seen("from=30&to=40&x=log");
  EXPECT_EQ(count(range, "placeholder=\"30\""), 1u);
  EXPECT_EQ(count(range, "left:0.00%\">30</span>"), 6u) << "every axis begins there";
}

}  // namespace
}  // namespace megalith::e2e
