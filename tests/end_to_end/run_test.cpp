// megalith run: the launcher that it starts hears of a signal only what saves, and what ranks end with is what it ends
// with.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <string.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/end_to_end/helpers.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

void write_small_run(const Scratch& scratch) {
  std::string tokens;
  for (int i = 0; i < 3000; i++) tokens += {static_cast<char>(i * i % 251), '\0'};
  write_file(scratch / "tokens.bin", tokens);
  write_file(
      scratch / "config.toml",
      "[model]\nlayers = 2\nhidden = 32\nheads = 4\nvocab = 257\ncontext = 16\n[data]\ntrain = \"tokens.bin\"\n"
      "[batch]\nglobal_batch_size = 8\nmicrobatch_size = 4\n[train]\nsteps = 1000000\n[run]\noutput = \"run\"\n");
}

Args started(int ranks, const Args& command) {
  Args args{"run", "-n", std::to_string(ranks)};
  args.insert(args.end(), command.begin(), command.end());
  return megalith(args);
}

// Open MPI leaves its ranks no time here (process.cpp), so what has them saved never came to it as SIGINT or SIGTERM.
TEST(Run, has_a_training_saved_by_whatever_asks_for_an_end) {
  const Scratch scratch;
  write_small_run(scratch);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    SCOPED_TRACE(signal);
    Process process(started(2, {"train", "config.toml"}), scratch.folder());
    wait_for_words(process, "\nstep ");
    ::kill(-process.pid(), signal);  // as a terminal does
    const Result result = process.wait(30);
    EXPECT_EQ(result.status, 75) << result.text();
    EXPECT_EQ(count(result.out, " is in a checkpoint in run/checkpoints"), 1u) << result.text();
    EXPECT_EQ(count(result.err, "\n"), 1u) << "mpirun's lines: " << result.text();
    EXPECT_EQ(result.err.find(fmt::format("megalith: SIG{}: the ranks save after the step", ::sigabbrev_np(signal))),
              0u)
        << result.text();
    EXPECT_TRUE(Process::ranks_end(10));
  }
}

TEST(Run, that_is_killed_has_its_training_saved) {
  const Scratch scratch;
  write_small_run(scratch);
  Process process(started(2, {"train", "config.toml"}), scratch.folder());
  wait_for_words(process, "\nstep ");
  ::kill(process.pid(), SIGKILL);
  EXPECT_EQ(process.wait(30).status, 128 + SIGKILL);
  EXPECT_TRUE(Process::ranks_end(10)) << "they live on";
  EXPECT_EQ(count(read_file(scratch / "run/log.txt"), " is in a checkpoint in run/checkpoints"), 1u);
}

// Which say what they have to say, and mpirun says only what they could not.
TEST(Run, ends_as_its_ranks_do) {
  const Scratch scratch;
  const Result wrong = run(started(2, {"train", "no.toml"}), scratch.folder());
  EXPECT_EQ(wrong.status, 1) << wrong.text();
  EXPECT_EQ(count(wrong.err, "\n"), 1u) << wrong.text();
  EXPECT_EQ(wrong.err.find("megalith: cannot read configuration no.toml"), 0u) << wrong.text();
  write_small_run(scratch);
  Process process(started(2, {"train", "config.toml"}), scratch.folder());
  wait_for_words(process, "\nstep ");
  std::set<pid_t> ranks;
  for (const pid_t pid : Process::ranks())
    if (pid != process.pid()) ranks.insert(pid);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(*ranks.rbegin(), SIGKILL);
  const Result killed = process.wait(30);
  EXPECT_NE(killed.status, 0) << killed.text();
  EXPECT_GE(count(killed.err, "Killed") + count(killed.err, "rank 1 has died"), 1u) << killed.text();
}

// Standard error passes through it, and yet it is the terminal on which the bar is drawn.
TEST(Run, draws_its_bar_on_a_terminal_when_its_output_goes_elsewhere) {
  const Scratch scratch;
  write_small_run(scratch);
  if (const Result tried = run({"script", "-qec", "true", "/dev/null"}, scratch.folder()); tried.status != 0)
    GTEST_SKIP() << "there is no script(1), or no pseudo-terminal: " << tried.text();
  const std::string command =
      fmt::format("{} > out.txt", fmt::join(started(2, {"train", "config.toml", "train.steps=40"}), " "));
  const Result shown = run({"script", "-qec", command, "/dev/null"}, scratch.folder());
  EXPECT_EQ(shown.status, 0) << shown.text();
  EXPECT_EQ(count(shown.out, "] 100.0%"), 1u) << shown.text();
  EXPECT_EQ(count(read_file(scratch / "out.txt"), "\033"), 0u);
}

// A launcher that only says what it was given, in a folder that comes first in PATH.
class StandIn : public testing::Test {
 protected:
  void launcher(const std::string& name, const std::string& script) const {
    write_file(scratch / "tools/" + name, "#!/bin/sh\n" + script + "\n");
    fs::permissions(scratch / "tools/" + name, fs::perms::owner_all);
  }
  static std::string path(const std::string& more = "") { return "export PATH=$PWD/tools:$PATH " + more; }

  const Scratch scratch;
};

TEST_F(StandIn, gets_the_command_as_it_was_given) {
  launcher("mpirun", "for word; do echo \"[$word]\"; done; echo \"root $OMPI_ALLOW_RUN_AS_ROOT\"; exit 7");
  const Result result = run(megalith({"run", "-n", "3", "train", "a b.toml", "--shrink", "3", "--help", "-n", "5"}),
                            scratch.folder(), 30, path());
  EXPECT_EQ(result.status, 7) << result.text();
  EXPECT_EQ(result.out.find("[-n]\n[3]\n[-x]\n[MEGALITH_STARTED_BY_RUN]\n["), 0u) << result.text();
  EXPECT_NE(result.out.find("/megalith]\n[train]\n[a b.toml]\n[--shrink]\n[3]\n[--help]\n[-n]\n[5]\n"),
            std::string::npos)
      << result.text();
}

TEST_F(StandIn, by_slurm_inside_an_allocation) {
  launcher("srun", "[ $1 != --mpi=list ] || { echo pmix; exit 0; }\necho \"srun $*\"; exit 75");
  const Result result = run(megalith({"run", "train", "c.toml"}), scratch.folder(), 30, path("SLURM_JOB_ID=17"));
  EXPECT_EQ(result.status, 75) << result.text();
  EXPECT_EQ(result.out.find("srun --mpi=pmix --kill-on-bad-exit=1 /"), 0u) << result.text();
}

TEST_F(StandIn, that_is_not_there_is_named) {
  const Result result = run(started(2, {"train", "c.toml"}), scratch.folder(), 30, "export PATH=$PWD/tools");
  EXPECT_EQ(result.status, 1) << result.text();
  EXPECT_EQ(result.err.find("megalith: cannot start mpirun: No such file or directory; "), 0u) << result.text();
}

// Counts what it hears, and ends by the third.
constexpr const char* listens =
    "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; trap 'echo int' INT; trap 'echo hup' HUP\n"
    "echo ready; while :; do sleep 0.02; done";

TEST_F(StandIn, hears_of_two_signals_that_they_save_and_of_a_third_that_it_is_over) {
  launcher("mpirun", listens);
  Process process(started(2, {"train", "c.toml"}), scratch.folder(), path());
  wait_for_words(process, "ready\n");
  for (const char* heard : {"ready\nusr1\n", "ready\nusr1\nusr1\n"}) {
    ::kill(-process.pid(), SIGINT);
    wait_for_words(process, heard);
    sleep_for(1.1);  // what comes within a second is the same
  }
  ::kill(-process.pid(), SIGINT);
  const Result result = process.wait(30);
  EXPECT_EQ(result.status, 3) << result.text();
  EXPECT_EQ(result.out, "ready\nusr1\nusr1\nterm\n");
}

TEST_F(StandIn, hears_nothing_of_a_hang_up_that_is_ignored) {
  launcher("mpirun", listens);
  Process process(started(2, {"train", "c.toml"}), scratch.folder(), path() + "; trap '' HUP");
  wait_for_words(process, "ready\n");
  ::kill(process.pid(), SIGHUP);
  sleep_for(0.3);
  ::kill(process.pid(), SIGTERM);
  wait_for_words(process, "ready\nusr1\n");
}

// A command that has nothing to save is ended, and by the signal that came.
TEST_F(StandIn, hears_at_once_of_the_end_of_other_commands) {
  launcher("mpirun", "echo ready; exec sleep 60");
  Process process(started(2, {"generate"}), scratch.folder(), path());
  wait_for_words(process, "ready\n");
  ::kill(-process.pid(), SIGINT);
  const Result result = process.wait(30);
  EXPECT_EQ(result.status, 128 + SIGINT) << result.text();
}

// A rank that is stopped makes its step as long as that.
TEST(Mpirun, is_said_to_lose_steps_that_are_longer_than_it_waits) {
  const Scratch scratch;
  write_small_run(scratch);
  const Args train{"train", "config.toml"};
  for (const bool by_run : {false, true}) {
    Process process(by_run ? started(2, train) : mpirun(2, train), scratch.folder(),
                    "export OMPI_MCA_odls_base_sigkill_timeout=1 PRTE_MCA_odls_base_sigkill_timeout=1");
    wait_for_words(process, "\nstep ");
    std::vector<pid_t> ranks = Process::ranks();
    std::erase(ranks, process.pid());
    for (int i = 0; i < 2; i++) {
      for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
      sleep_for(1.2);
      for (const pid_t rank : ranks) ::kill(rank, SIGCONT);
      sleep_for(0.2);
    }
    ::kill(process.pid(), SIGUSR1);
    const Result result = process.wait(30);
    EXPECT_EQ(result.status, 75) << result.text();
    EXPECT_EQ(count(result.out, "warning: a step takes "), by_run ? 0u : 1u) << result.text();
    EXPECT_EQ(count(result.out, "`megalith run -n 2 train ...`"), by_run ? 0u : 1u) << result.text();
  }
}

// Inodes of sockets that listen, by what /proc says of IPv4 and IPv6.
std::set<std::string> listening() {
  std::set<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream in(line);
      std::vector<std::string> words;
      for (std::string word; in >> word;) words.push_back(word);
      if (words.size() > 9 && words[3] == "0A") inodes.insert("socket:[" + words[9] + "]");
    }
  }
  return inodes;
}

TEST(Ranks, of_one_host_do_not_listen_to_others) {
  const Scratch scratch;
  write_small_run(scratch);
  for (const bool tcp : {false, true}) {  // where Open MPI is told to, to show that it would be seen
    Process process(mpirun(2, {"train", "config.toml"}), scratch.folder(),
                    tcp ? "export OMPI_MCA_btl=^ofi" : "unset OMPI_MCA_btl");
    wait_for_words(process, "\nstep ");
    const std::set<std::string> sockets = listening();
    size_t found = 0;
    for (const pid_t rank : Process::ranks())
      for (const auto& file : fs::directory_iterator(fmt::format("/proc/{}/fd", rank))) {
        std::error_code gone;
        found += sockets.count(fs::read_symlink(file, gone).string());
      }
    EXPECT_EQ(found > 0, tcp);
    process.kill_all();
    fs::remove_all(scratch / "run");
  }
}

}  // namespace
}  // namespace megalith::e2e
