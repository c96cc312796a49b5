// megalith doctor.
#include <algorithm>
#include <filesystem>

#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "trainer/commands/command.h"
#include "trainer/session/call_pages.h"
#include "trainer/session/hang.h"

namespace megalith {

namespace {

const char* in_words(RankState state) {
  switch (state) {
    case RankState::running: return "ran";
    case RankState::stopped: return "was stopped";
    case RankState::dead: return "had died";
    case RankState::left: return "had left";
    case RankState::gave_up: return "had given up";
    default: return "was not seen";
  }
}

void tell(const std::string& run) {
  const std::string folder = run + "/calls", message = folder + "/" + message_file;
  CHECK(std::filesystem::is_directory(run), "there is no run folder {}; name the run.output of a training", run);
  std::vector<KnownRank> known = read_remains(folder);
  const bool said = std::filesystem::exists(message);
  CHECK(said || !known.empty(),
        "{} holds nothing of a job that hung, and this machine's memory nothing of one that was killed: the last job "
        "of this run ended in order, be it with an error (log.txt), had one rank, ran on other machines, or had "
        "communication.timeout = 0",
        folder);
  if (said) fmt::print("{}", read_file(message));
  const bool all_gone = std::ranges::all_of(known, [](const KnownRank& r) { return r.state == RankState::dead; });
  if (!said && all_gone) {
    fmt::print("all {} are gone, and nobody said why; where they were:\n",
               counted(static_cast<int64_t>(known.size()), "rank"));
    for (KnownRank& r : known) r.state = RankState::running;
  }
  const Hang hang = diagnose(known, 0);
  if (!said && hang.kind != Hang::Kind::none) fmt::print("{}: {}\n", name_of(hang.kind), hang.text);
  for (const KnownRank& r : known) {
    const KnownCall* waits = blocked_call(r, 0);
    fmt::print("  {} ({}){}\n", standing(r, 0), in_words(r.state),
               waits ? fmt::format(", for {:.1f} s", waits->waits) : "");
  }
}

}  // namespace

Command doctor_command(CLI::App& cli) {
  auto* app =
      cli.add_subcommand("doctor", "Who was behind, at which call and on which step, in a job that hung or was killed");
  auto run = std::make_shared<std::string>();
  app->add_option("run", *run, "run folder")->required();
  return {app, [run] {
            tell(*run);
            return 0;
          }};
}

}  // namespace megalith
