// megalith report.
#include <filesystem>

#include "kernels/base/counted.h"
#include "kernels/base/files.h"
#include "trainer/commands/command.h"
#include "trainer/report/page.h"

namespace megalith {

Command report_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("report", "What runs did, as one HTML page: plots, and how several compare");
  struct Options {
    std::vector<std::string> runs;
    std::string out;
  };
  auto o = std::make_shared<Options>();
  app->add_option("run", o->runs, "run folders, each the run.output of a training")->required();
  app->add_option("--out", o->out, "file for the page; default: report.html in the first run's folder");
  return {app, [o] {
            std::vector<History> runs;
            for (const std::string& run : o->runs) runs.push_back(read_history(run));
            const std::string out = o->out.empty() ? o->runs.front() + "/report.html" : o->out;
            const std::string page = report_page(runs);
            if (std::error_code absent; std::filesystem::exists(out, absent))
              CHECK(read_file(out).find("megalith report") != std::string::npos,
                    "{} exists and is no page of megalith report; move it away or name another file with --out", out);
            write_file(out, page, {.replace = true, .durable = false});
            fmt::print(
                "{}: {} of {}, {:.0f} kB\n", out, counted(static_cast<int64_t>(runs.size()), "run"),
                [&] {
                  int64_t steps = 0;
                  for (const History& run : runs) steps += static_cast<int64_t>(run.loss.size());
                  return counted(steps, "step");
                }(),
                static_cast<double>(page.size()) / 1e3);
            return 0;
          }};
}

}  // namespace megalith
