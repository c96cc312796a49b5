// Implements megalith report, replay, data audit, which read run folders.
#include <filesystem>

#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "trainer/commands/command.h"
#include "trainer/inference/inference.h"
#include "trainer/job/agreement.h"
#include "trainer/machine/machine.h"
#include "trainer/replay/replay.h"
#include "trainer/report/page.h"
#include "trainer/train/audit.h"

namespace megalith {

namespace {

struct Options {
  std::vector<std::string> runs;
  std::string out, prompt;
};

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
            "{} exists and is not a page of megalith report; move it away or name another file with --out", out);
    write_file(out, page, {.replace = true, .durable = false});
    fmt::print("{}: {} of {}, {:.0f} kB\n", out, counted(static_cast<int64_t>(o.runs.size()), "run"),
               counted(steps, "step"), static_cast<double>(page.size()) / 1e3);
  });
  return 0;
}

}  // namespace

Command report_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("report", "Write an HTML page about runs: plots, and a comparison of several");
  auto o = std::make_shared<Options>();
  app->add_option("run", o->runs, "run folders, each the run.output of a training")->required();
  app->add_option("--out", o->out, "file for the page; default: report.html in the first run's folder");
  app->add_option("--prompt", o->prompt, "a text that the newest checkpoint of each run continues, for the page");
  return {app, {}, [o](const Session& session) { return report(*o, session); }};
}

Command replay_command(CLI::App& cli) {
  auto* app = cli.add_subcommand("replay",
                                 "Repeat one step of a run from the newest checkpoint before it, and find the first op "
                                 "whose output is not finite; on one rank or under mpirun. Writes nothing");
  auto o = std::make_shared<ReplayOptions>();
  app->add_option("run", o->run, "run folder")->required();
  app->add_option("--step", o->step, "the step, counted from 1")->required()->check(no_less_than(1));
  app->add_option("--checkpoint", o->checkpoint, "checkpoint to start from; default: the newest before the step");
  add_overrides(app, o->overrides,
                "section.key=value ... of the layout: parallel.*, memory.*, precision.*, batch.microbatch_size, "
                "run.device, communication.*; and data.train and checkpoint.directory if files have moved");
  const auto replay_step = [o](const Session& session) {
    const Replayed replayed = replay(*o, session);
    if (session.rank() == 0)
      for (const std::string& line : lines_of(replayed)) fmt::print("{}\n", line);
    return 0;
  };
  return {app, {}, replay_step, [o] { return load_communication(o->run + "/config.toml", o->overrides); }};
}

Command data_audit_command(CLI::App& cli) {
  auto* group = cli.add_subcommand("data", "Check the data that a run was trained on");
  group->require_subcommand(1);
  auto* app = group->add_subcommand(
      "audit", "Prove from a run's metrics and checkpoints that it left out and repeated no sample within an epoch");
  auto run = std::make_shared<std::string>();
  app->add_option("run", *run, "run folder")->required();
  return {app, [run] {
            const Audit audit = audit_run(*run);
            for (const std::string& line : audit.lines) fmt::print("{}\n", line);
            fmt::print("{}\n", audit.violation.empty() ? "all well: within an epoch no sample was repeated or left out"
                                                       : "VIOLATION: " + audit.violation);
            return audit.violation.empty() ? 0 : 1;
          }};
}

}  // namespace megalith
