// Signals that ask a run to end, to mpirun, to a rank, or as a terminal's ctrl-C: it saves, says so and ends in time,
// and the run that goes on is the run that was never stopped.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/end_to_end/signalled_run.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

constexpr int saved_status = 75;

enum class Target { mpirun, first_rank, last_rank, group };

void send_signal(const Process& process, int signal, Target target) {
  if (target == Target::group) {
    ASSERT_EQ(::kill(-process.pid(), signal), 0);
    return;
  }
  std::vector<pid_t> ranks = Process::ranks();
  ASSERT_FALSE(ranks.empty());
  std::sort(ranks.begin(), ranks.end());  // as they were started
  ASSERT_EQ(::kill(target == Target::mpirun       ? process.pid()
                   : target == Target::first_rank ? ranks.front()
                                                  : ranks.back(),
                   signal),
            0);
}

struct Signalled {
  int signal;
  Target target;
};

struct SignalledRun {
  int ranks;  // 0: without mpirun
  std::vector<Signalled> sent;
};

void PrintTo(const SignalledRun& run, std::ostream* out) { *out << run.ranks << " ranks"; }

class Signals : public testing::TestWithParam<SignalledRun> {};

// Sends it and expects the run to save the step that it has reached, and to say so; returns that step. mpirun's own
// end, where it is asked to end itself, has a status of its own.
int64_t expect_saved(Process& process, const Scratch& scratch, const Signalled& sent) {
  SCOPED_TRACE(fmt::format("signal {} to {}", sent.signal, static_cast<int>(sent.target)));
  const bool mpirun_ends = process.out().find("2 ranks") != std::string::npos && sent.signal != SIGUSR1 &&
                           sent.signal != SIGUSR2 && (sent.target == Target::mpirun || sent.target == Target::group);
  send_signal(process, sent.signal, sent.target);
  const Result result = process.wait(30);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, mpirun_ends ? 1 : saved_status) << result.text();
  const std::vector<Step> steps = read_steps(scratch / "run");
  const int64_t newest = newest_step(scratch / "run");
  EXPECT_EQ(newest, steps.empty() ? -1 : steps.back().step) << result.text();
  const std::string last = last_word(scratch / "run");
  EXPECT_EQ(last.find("ended: SIG"), 0u) << last << result.text();
  EXPECT_NE(last.find(fmt::format("; step {} is in a checkpoint in run/checkpoints", newest)), std::string::npos)
      << last;
  return newest;
}

TEST_P(Signals, have_a_run_saved_that_goes_on_as_if_there_were_none) {
  const auto& [ranks, sent] = GetParam();
  const Scratch scratch;
  write_signalled_config(scratch);
  int64_t done = 0;
  for (const Signalled& signal : sent) {
    Process process(signalled_run(ranks), scratch.folder());
    wait_for_words(process, fmt::format("\nstep {}/", done + 1));
    const int64_t before = std::exchange(done, expect_saved(process, scratch, signal));
    EXPECT_GT(done, before);
    if (HasFailure()) return;
  }
  const std::string steps = fmt::format("train.steps={}", done + 2);
  succeed(signalled_run(ranks, {steps}), scratch);
  succeed(signalled_run(ranks, {steps, "run.output=whole"}), scratch);
  EXPECT_EQ(last_word(scratch / "run").find("done: "), 0u);
  EXPECT_TRUE(read_steps(scratch / "run") == read_steps(scratch / "whole"));
  expect_same_rank_files(scratch / "run/checkpoints/" + step_name(done + 2),
                         scratch / "whole/checkpoints/" + step_name(done + 2));
}

INSTANTIATE_TEST_SUITE_P(
    EndToEnd, Signals,
    testing::Values(SignalledRun{0, {{SIGINT, Target::group}, {SIGHUP, Target::group}, {SIGTERM, Target::mpirun}}},
                    SignalledRun{1, {{SIGUSR1, Target::mpirun}}},
                    SignalledRun{
                        2, {{SIGUSR1, Target::mpirun}, {SIGHUP, Target::first_rank}, {SIGTERM, Target::last_rank}}},
                    SignalledRun{4, {{SIGUSR2, Target::mpirun}, {SIGINT, Target::last_rank}}}),
    [](const auto& suite) { return fmt::format("on_{}_ranks", suite.param.ranks); });

// Returns whether the rank that is there has begun to handle the signal, which on a busy machine is long after its
// start.
bool first_rank_blocks(int signal) {
  const std::vector<pid_t> ranks = Process::ranks();
  if (ranks.empty()) return false;
  std::ifstream status(fmt::format("/proc/{}/status", ranks.front()));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1;
  return false;
}

// Before MPI_Init is over on all ranks: Open MPI 4's mpirun may wait for ever for a rank that ends in there.
TEST(Signal, to_a_rank_that_starts_waits_until_it_has) {
  const Scratch scratch;
  write_signalled_config(scratch);
  write_file(scratch / "late", "#!/bin/sh\nuntil [ -e go ]; do sleep 0.01; done\nexec '" +
                                   place("MEGALITH_PROGRAM", MEGALITH_PROGRAM) + "' \"$@\"\n");
  fs::permissions(scratch / "late", fs::perms::owner_all);
  const auto signalled = [&](const Args& args, int signal) {
    fs::remove(scratch / "go");
    Process process(mpirun({{1, args}, {1, args, scratch / "late"}}), scratch.folder());
    for (const double start = now(); !first_rank_blocks(signal) && now() - start < 60;) sleep_for(0.01);
    sleep_for(0.5);  // for it to reach MPI_Init, and wait there
    send_signal(process, signal, Target::first_rank);
    sleep_for(0.1);
    EXPECT_EQ(Process::ranks().size(), 1u) << "it has not waited";
    write_file(scratch / "go", "");
    return process.wait(30);
  };
  const Args train{"train", "config.toml", "train.steps=2"};
  const Result fresh = signalled(train, SIGUSR1);
  EXPECT_EQ(fresh.status, 128 + SIGUSR1) << fresh.text();
  EXPECT_EQ(last_word(scratch / "run"),
            "ended: rank 0: SIGUSR1; there is no checkpoint in run/checkpoints, and 0 steps are lost");
  succeed(mpirun(2, train), scratch);
  const Result resumed = signalled({"train", "config.toml"}, SIGTERM);
  EXPECT_EQ(resumed.status, saved_status) << resumed.text();
  EXPECT_EQ(newest_step(scratch / "run"), 2);
  const std::string word = last_word(scratch / "run");
  EXPECT_EQ(word.find("ended: rank 0: SIGTERM; step 2 is in a checkpoint"), 0u) << word;
  const Result other = signalled({"generate", "--checkpoint", "run", "--prompt", "a"}, SIGINT);
  EXPECT_EQ(other.status, 128 + SIGINT) << other.text();
}

// Where mpirun itself is asked to end, it tells its ranks, and kills them later.
TEST(Signal, that_ends_mpirun_has_the_run_saved) {
  for (const Signalled& signal : {Signalled{SIGTERM, Target::mpirun}, Signalled{SIGINT, Target::group}}) {
    const Scratch scratch;
    write_signalled_config(scratch);
    Process process(signalled_run(2), scratch.folder(), grace(2));
    wait_for_words(process, "\nstep 1/");
    expect_saved(process, scratch, signal);
  }
}

// A run whose rank 1 has been stopped in the middle, so that the step in flight never ends.
class StuckRun : public testing::Test {
 protected:
  void start(const Args& more) {
    write_signalled_config(scratch);
    process.emplace(signalled_run(2, more), scratch.folder());
    wait_for_words(*process, "step 5  checkpoint");
    std::vector<pid_t> ranks = Process::ranks();
    ASSERT_EQ(ranks.size(), 2u);
    std::sort(ranks.begin(), ranks.end());
    first = ranks[0];
    for (bool in_between = false; !in_between; in_between = read_steps(scratch / "run").back().step % 5 > 0) {
      ::kill(ranks[1], SIGCONT);
      sleep_for(0.01);
      ASSERT_EQ(::kill(ranks[1], SIGSTOP), 0);
      sleep_for(0.3);  // for rank 0 to do what it can
    }
  }
  // That it has ended with this status, and says why and what is lost, once.
  void expect_end(int status, const std::string& why) {
    const Result result = process->wait(30);
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.status, status) << result.text();
    EXPECT_TRUE(Process::ranks_end(30));
    const std::string last = last_word(scratch / "run");
    const int64_t newest = newest_step(scratch / "run"), trained = read_steps(scratch / "run").back().step;
    EXPECT_EQ(last.find("ended: rank 0: " + why), 0u) << last;
    EXPECT_NE(last.find(fmt::format("the newest checkpoint in run/checkpoints is of step {}, and {} step", newest,
                                    trained - newest)),
              std::string::npos)
        << last;
    EXPECT_EQ(count(result.err, "megalith: rank 0: " + why), 1u) << result.text();
  }

  const Scratch scratch;
  std::optional<Process> process;
  pid_t first = -1;
};

TEST_F(StuckRun, ends_when_the_time_is_over) {
  // More than the steps that start() held up for 0.3 s let it expect of the one in flight, or it would not try.
  start({"checkpoint.every=5", "checkpoint.on_signal_seconds=3"});
  ::kill(first, SIGTERM);
  expect_end(128 + SIGTERM, "SIGTERM; the grace period set by checkpoint.on_signal_seconds = ");
}

TEST_F(StuckRun, ends_at_once_with_a_second_signal) {
  start({"checkpoint.every=5"});
  ::kill(first, SIGUSR1);
  sleep_for(0.2);
  ::kill(first, SIGUSR1);  // taken for the same
  sleep_for(1);
  EXPECT_TRUE(process->running());
  const double second = now();
  ::kill(first, SIGINT);
  expect_end(128 + SIGINT, "SIGUSR1, and then SIGINT");
  EXPECT_LT(now() - second, 20) << "of the 120 s of checkpoint.on_signal_seconds";
}

// Where there is no time at all, nothing is tried.
TEST(Signal, without_time_ends_with_the_last_checkpoint) {
  const Scratch scratch;
  write_signalled_config(scratch);
  Process process(signalled_run(2, {"checkpoint.every=5", "checkpoint.on_signal_seconds=1e-9"}), scratch.folder());
  wait_for_words(process, "step 5  checkpoint");
  send_signal(process, SIGUSR2, Target::last_rank);
  const Result result = process.wait(30);
  const int64_t newest = newest_step(scratch / "run"), trained = read_steps(scratch / "run").back().step;
  EXPECT_EQ(newest % 5, 0);
  const std::string last = last_word(scratch / "run");
  EXPECT_EQ(last.find("ended: "), 0u) << last;
  EXPECT_NE(last.find("SIGUSR2"), std::string::npos) << last;
  if (newest == trained) {  // it came just then
    EXPECT_EQ(result.status, saved_status) << result.text();
    return;
  }
  EXPECT_EQ(result.status, 128 + SIGUSR2) << result.text();
  EXPECT_NE(last.find("the newest checkpoint in run/checkpoints is of step "), std::string::npos) << last;
}

// A signal that comes while the run evaluates, on six million held-out tokens in batches of 8 sequences.
class EvaluatingRun : public testing::Test {
 protected:
  EvaluatingRun() {
    write_signalled_config(scratch);
    std::string tokens;
    for (int i = 0; i < 6'000'000; i++) tokens += {static_cast<char>(i * i % 251), '\0'};
    write_file(scratch / "held-out.bin", tokens);
  }
  // Once its steps are made and it evaluates.
  Result signalled(Args more, double after) const {
    more.insert(more.end(), {"data.validation=held-out.bin", "train.evaluate_every=3"});
    Process process(signalled_run(2, more), scratch.folder());
    const double start = now();
    while (read_steps(scratch / "run").size() < 3 && process.running() && now() - start < 60) sleep_for(0.01);
    sleep_for(after);
    EXPECT_EQ(count(read_file(scratch / "run/metrics.jsonl"), "validation_loss"), 0u) << "it is over already";
    send_signal(process, SIGUSR1, Target::last_rank);
    return process.wait(120);
  }

  const Scratch scratch;
};

TEST_F(EvaluatingRun, saves_where_there_is_no_time_for_the_rest) {
  const Result result = signalled({"checkpoint.on_signal_seconds=3", "train.evaluate_batches=1000000"}, 0.5);
  EXPECT_EQ(result.status, saved_status) << result.text();
  EXPECT_EQ(newest_step(scratch / "run"), 3) << result.text();
  EXPECT_EQ(read_steps(scratch / "run").back().step, 3);
  EXPECT_EQ(count(result.out + result.err, " of 46875 batches without a result"), 1u) << result.text();
  EXPECT_EQ(last_word(scratch / "run").find("ended: SIGUSR1 on rank 1; step 3 is in a checkpoint"), 0u);
}

TEST_F(EvaluatingRun, goes_on_where_there_is_time) {
  const Args some{"train.evaluate_batches=2000"};
  const Result result = signalled(some, 0.05);
  EXPECT_EQ(result.status, saved_status) << result.text();
  EXPECT_EQ(newest_step(scratch / "run"), 3) << result.text();
  EXPECT_EQ(count(read_file(scratch / "run/metrics.jsonl"), "validation_loss"), 1u);
}

// Then nothing is lacking, and the run is done.
TEST_F(EvaluatingRun, is_done_after_its_last_step) {
  const Result result = signalled({"train.evaluate_batches=2000", "train.steps=3"}, 0.05);
  EXPECT_EQ(result.status, 0) << result.text();
  EXPECT_EQ(newest_step(scratch / "run"), 3) << result.text();
  EXPECT_EQ(last_word(scratch / "run").find("done: 3 steps"), 0u);
}

// Rank 0's clock decides, and all ranks save.
TEST(Checkpoint, comes_by_time) {
  const Scratch scratch;
  write_signalled_config(scratch);
  Process process(signalled_run(2, {"checkpoint.minutes=0.002"}), scratch.folder());
  const std::string by_itself = "  checkpoint run/checkpoints/step-";
  const double start = now();
  while (count(process.out(), by_itself) < 3) {
    ASSERT_LT(now() - start, 60);
    ASSERT_TRUE(process.running()) << process.wait().text();
    sleep_for(0.01);
  }
  process.kill_all();
  for (const std::string& name : checkpoints_in(scratch / "run/checkpoints"))
    EXPECT_EQ(run(megalith({"checkpoint", "verify", "run/checkpoints/" + name}), scratch.folder()).status, 0) << name;
}

// Nobody takes their output then, nor answers what MPI asks of mpirun.
TEST(Orphans, save_when_mpirun_is_killed) {
  for (int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const Scratch scratch;
    write_signalled_config(scratch);
    Process process(signalled_run(ranks), scratch.folder());
    wait_for_words(process, "\nstep 1/");
    ::kill(process.pid(), SIGKILL);
    EXPECT_EQ(process.wait(30).status, 128 + SIGKILL);
    EXPECT_TRUE(Process::ranks_end(10)) << "they live on";
    const int64_t newest = newest_step(scratch / "run");
    EXPECT_GT(newest, 0);
    EXPECT_EQ(newest, read_steps(scratch / "run").back().step);
    const std::string last = last_word(scratch / "run");
    EXPECT_EQ(last.find("ended: the launcher's end on rank "), 0u) << last;
    EXPECT_NE(last.find(fmt::format("; step {} is in a checkpoint in run/checkpoints", newest)), std::string::npos)
        << last;
  }
}

}  // namespace
}  // namespace megalith::e2e
