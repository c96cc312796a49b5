// Implements megalith doctor.
#include <algorithm>
#include <filesystem>

#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "trainer/commands/command.h"
#include "trainer/doctor/diagnosis.h"
#include "trainer/session/recorder_pages.h"

namespace megalith {

namespace {

const char* in_words(RankState state) {
  constexpr const char* words[] = {"was not seen", "ran", "was stopped", "had died", "had left", "had given up"};
  const auto i = static_cast<size_t>(state);
  return words[i < std::size(words) ? i : 0];
}

void tell(const std::string& run) {
  const std::string folder = run + "/calls", message = folder + "/" + message_file;
  CHECK(std::filesystem::is_directory(run), "there is no run folder {}; name the run.output of a training", run);
  std::vector<RankDump> dumps = read_dumps(folder);
  const bool said = std::filesystem::exists(message);
  CHECK(said || !dumps.empty(),
        "{} has no record of a job that hung, nor has this machine's memory one of a job that was killed. The last job "
        "of this run ended in order, possibly with an error (log.txt), had one rank, ran on other machines, or had "
        "communication.timeout = 0",
        folder);
  if (said) fmt::print("{}", read_file(message));
  const bool all_gone = std::ranges::all_of(dumps, [](const RankDump& r) { return r.state == RankState::dead; });
  if (!said && all_gone) {
    fmt::print("all {} are gone, and none has reported why; their last calls:\n",
               counted(static_cast<int64_t>(dumps.size()), "rank"));
    for (RankDump& r : dumps) r.state = RankState::running;
  }
  const Diagnosis found = diagnose(dumps, 0);
  if (!said && found.kind != Diagnosis::Kind::none) fmt::print("{}: {}\n", name_of(found.kind), found.text);
  for (const RankDump& r : dumps) {
    const DumpedCall* waits = r.blocked_call(0);
    fmt::print("  {} ({}){}\n", standing(r, 0), in_words(r.state),
               waits ? fmt::format(", for {:.1f} s", waits->waits) : "");
  }
}

}  // namespace

Command doctor_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "doctor", "Find which ranks were behind, at which call and on which step, in a job that hung or was killed");
  auto run = std::make_shared<std::string>();
  app->add_option("run", *run, "run folder")->required();
  return {app, [run] {
            tell(*run);
            return 0;
          }};
}

}  // namespace megalith
