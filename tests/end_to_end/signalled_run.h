// A run for signals_test.cpp and endings_test.cpp, and what it leaves when it ends.
#pragma once

#include <fmt/format.h>

#include <fstream>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {

// Writes the config of a run that is small and quick, with what a resume must restore: shuffling over many epochs,
// dropout, accumulation. It says little: mpirun reads nothing while it waits for ranks to end, and a rank that says
// more than fits into its pipe is stuck.
inline void write_signalled_config(const Scratch& scratch) {
  std::string tokens;
  for (int i = 0; i < 3000; i++) tokens += {static_cast<char>(i * i % 251), '\0'};
  write_file(scratch / "tokens.bin", tokens);
  write_file(scratch / "config.toml",
             "[model]\nlayers = 2\nhidden = 32\nheads = 4\nvocab = 257\ncontext = 16\ndropout = 0.1\n"
             "[data]\ntrain = \"tokens.bin\"\n"
             "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 2\n"
             "[optimizer]\nlearning_rate = 1e-3\nwarmup_steps = 5\ndecay = \"constant\"\n"
             "[train]\nsteps = 1000000\n[run]\noutput = \"run\"\n");
}

inline Args signalled_run(int ranks, const Args& more = {}) {
  Args args{"train", "config.toml"};
  args.insert(args.end(), more.begin(), more.end());
  return ranks == 0 ? megalith(args) : mpirun(ranks, args);
}

// Sets the time that Open MPI leaves its ranks between SIGTERM and SIGKILL.
inline std::string grace(int seconds) {
  return fmt::format("export OMPI_MCA_odls_base_sigkill_timeout={0} PRTE_MCA_odls_base_sigkill_timeout={0}", seconds);
}

// Returns the last line of a run's log, without the time.
inline std::string last_word(const std::string& run_folder) {
  std::ifstream in(run_folder + "/log.txt");
  std::string last;
  for (std::string line; std::getline(in, line);) last = line;
  return last.size() > 20 ? last.substr(20) : last;
}

inline int64_t newest_step(const std::string& run_folder) {
  const std::vector<std::string> all = checkpoints_in(run_folder + "/checkpoints");
  return all.empty() ? 0 : std::stoll(all.back().substr(5));
}

}  // namespace megalith::e2e
