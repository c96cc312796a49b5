// megalith report.
#include <filesystem>

#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "trainer/commands/command.h"
#include "trainer/inference/inference.h"
#include "trainer/job/agreement.h"
#include "trainer/machine/machine.h"
#include "trainer/report/page.h"

namespace megalith {

namespace {

struct Options {
  std::vector<std::string> runs;
  std::string out, prompt;
};

// Collective.
std::string continued(const std::string& run, const std::string& prompt, const Session& session) {
  use_threads(session.ranks_on_this_node());
  Inference inference(run, "", {}, session);
  std::string text;
  inference.generate({prompt}, {}, [&](size_t, int64_t, std::string_view piece) { text += piece; });
  return text;
}

int report(const Options& o, const Session& session) {
  std::vector<History> runs;
  together(session, [&] {
    for (const std::string& run : o.runs) runs.push_back(read_history(run));
  });
  if (!o.prompt.empty())
    for (History& run : runs) {
      run.prompt = o.prompt;
      run.continuation = continued(run.folder, o.prompt, session);
    }
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::string out = o.out.empty() ? o.runs.front() + "/report.html" : o.out;
    int64_t steps = 0;
    for (const History& run : runs) steps += static_cast<int64_t>(run.loss.size());
    const std::string page = report_page(std::move(runs));
    if (std::error_code absent; std::filesystem::exists(out, absent))
      CHECK(read_file(out).find("megalith report") != std::string::npos,
            "{} exists and is no page of megalith report; move it away or name another file with --out", out);
    write_file(out, page, {.replace = true, .durable = false});
    fmt::print("{}: {} of {}, {:.0f} kB\n", out, counted(static_cast<int64_t>(o.runs.size()), "run"),
               counted(steps, "step"), static_cast<double>(page.size()) / 1e3);
  });
  return 0;
}

}  // namespace

Command report_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("report", "What runs did, as one HTML page: plots, and how several compare");
  auto o = std::make_shared<Options>();
  app->add_option("run", o->runs, "run folders, each the run.output of a training")->required();
  app->add_option("--out", o->out, "file for the page; default: report.html in the first run's folder");
  app->add_option("--prompt", o->prompt, "a text that the newest checkpoint of each run continues, for the page");
  return {app, {}, [o](const Session& session) { return report(*o, session); }};
}

}  // namespace megalith
