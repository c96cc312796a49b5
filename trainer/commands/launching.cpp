// Implements megalith run.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "kernels/system/files.h"
#include "trainer/commands/command.h"
#include "trainer/commands/help.h"
#include "trainer/machine/machine.h"
#include "trainer/session/start_ranks.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// Returns the output of `srun --mpi=list` inside an allocation; "" outside of one or without srun.
std::string srun_kinds() {
  if (!std::getenv("SLURM_JOB_ID")) return "";
  std::string said;
  if (FILE* list = ::popen("srun --mpi=list 2>&1", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, list)) said += line;
    if (::pclose(list) != 0) said.clear();
  }
  return said;
}

// A bundle (docker/bundle.sh) has its own mpirun, and a script for each program in its bin/.
Surroundings surroundings() {
  const fs::path program = fs::read_symlink("/proc/self/exe"), bundle = program.parent_path().parent_path();
  const bool bundled = fs::exists(bundle / "c-library.sh") && fs::exists(bundle / "mpirun");
  return {.variable = [](const char* name) -> const char* { return std::getenv(name); },
          .mpirun = bundled ? (bundle / "mpirun").string() : "mpirun",
          .program = (bundled ? bundle / "megalith" : program).string(),
          .srun_kinds = srun_kinds(),
          .folder = fs::current_path().string(),
          .root = ::geteuid() == 0,
          .shared_memory = free_shared_memory()};
}

}  // namespace

Command run_command(CLI::App& cli) {
  auto* app = cli.add_subcommand(
      "run",
      "Start a command on several ranks, by mpirun or, inside an allocation of Slurm, by srun. After Ctrl-C, or "
      "another signal to end (SIGTERM, SIGHUP, SIGUSR1, SIGUSR2), a training saves, however long its step takes; a "
      "second one ends it at once. In `chat` and `generate --interactive`, which get the typed text, Ctrl-C ends the "
      "text and not the ranks. The exit status is that of the ranks");
  struct Options {
    RanksWanted wanted;
    std::vector<std::string> command;
  };
  auto o = std::make_shared<Options>();
  app->add_option("command", o->command, "the command of each rank: train config.toml ..., generate ...")->required();
  app->add_option("-n", o->wanted.ranks, "ranks; default inside an allocation of Slurm: its tasks")
      ->check(no_less_than(1));
  app->add_option("--hosts", o->wanted.hosts_file, "file with one host per line, each of which gets as many ranks");
  Command command{.app = app, .on_rank_0 = [o, &cli] {
                    const std::string& name = o->command.front();
                    CHECK(name != "run", "megalith run would start ranks that each start more; leave out one run");
                    if (!o->wanted.hosts_file.empty()) o->wanted.hosts = read_file(o->wanted.hosts_file);
                    const bool takes_config = std::ranges::any_of(commands_of(cli), [&](const CLI::App* each) {
                      return each->get_name() == name && each->get_option_no_throw("overrides");
                    });
                    const bool talks = name == "chat" || std::ranges::count(o->command, "--interactive") > 0;
                    return start_ranks(launch_line(o->wanted, o->command, takes_config, surroundings()),
                                       name == "train" ? SIGUSR1 : SIGTERM, talks);
                  }};
  command.handles_signals = command.starts_ranks = true;
  return command;
}

}  // namespace megalith
