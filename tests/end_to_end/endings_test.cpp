// Tests how commands end without a signal to their run: when nobody reads their output, with an error, and where there
// is nothing to save; and what Slurm's script makes of it.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/end_to_end/signalled_run.h"

namespace megalith::e2e {
namespace {

namespace fs = std::filesystem;

// A closed terminal, or `| head`: the run goes on, and its log says once that nobody listens.
TEST(Output, that_nobody_reads_ends_nothing) {
  for (const int ranks : {0, 2}) {
    SCOPED_TRACE(ranks);
    const Scratch scratch;
    write_signalled_config(scratch);
    Args pipeline{"/bin/bash", "-c", "\"$@\" 2>&1 | true; exit ${PIPESTATUS[0]}", "bash"};
    const Args training = signalled_run(ranks, {"train.steps=20", "train.log_every=1"});
    pipeline.insert(pipeline.end(), training.begin(), training.end());
    const Result result = run(pipeline, scratch.folder(), 120, grace(5));
    EXPECT_TRUE(Process::ranks_end(10));
    const size_t trained = read_steps(scratch / "run").size();
    EXPECT_EQ(newest_step(scratch / "run"), static_cast<int64_t>(trained));
    const std::string last = last_word(scratch / "run");
    if (ranks > 0) {  // mpirun itself ends its ranks where nobody reads its output, or dies of it
      EXPECT_TRUE(last.starts_with("done: 20 steps") || last.starts_with("ended: ")) << last;
      continue;
    }
    EXPECT_EQ(trained, 20u) << result.text();
    EXPECT_EQ(last.find("done: 20 steps"), 0u) << last;
    EXPECT_EQ(result.status, 0) << result.text();
    EXPECT_EQ(count(read_file(scratch / "run/log.txt"), "warning: standard output cannot be written: Broken pipe"), 1u);
  }
}

// An error ends its log as well.
TEST(Log, ends_with_the_error_that_ended_the_run) {
  const Scratch scratch;
  write_signalled_config(scratch);
  const Result gave_up =
      run(signalled_run(2, {"train.max_bad_steps=1", "optimizer.learning_rate=1e30"}), scratch.folder());
  EXPECT_EQ(gave_up.status, 1) << gave_up.text();
  const std::string last = last_word(scratch / "run");
  EXPECT_EQ(last.find("ended: step "), 0u) << last;
  EXPECT_NE(last.find("skipped, and train.max_bad_steps = 1"), std::string::npos) << last;
}

// A rank that never reaches MPI_Init holds all others there.
TEST(Start, that_hangs_in_mpi_ends_after_the_timeout) {
  const Scratch scratch;
  write_signalled_config(scratch);
  write_file(scratch / "never", "#!/bin/sh\nexec sleep 100\n");
  fs::permissions(scratch / "never", fs::perms::owner_all);
  const Args train{"train", "config.toml", "communication.timeout=2"};
  const Result result = run(mpirun({{1, train}, {1, train, scratch / "never"}}), scratch.folder(), 60);
  EXPECT_NE(result.status, 0) << result.text();
  EXPECT_EQ(count(result.err, "megalith: rank 0 of 2: MPI has not started after communication.timeout = 2 s"), 1u)
      << result.text();
}

// Commands with nothing to save just end.
TEST(Interrupted, commands_end_at_once) {
  const Scratch scratch;
  write_signalled_config(scratch);
  std::string many(4'000'000, '\0');
  for (size_t i = 0; i < many.size(); i += 2) many[i] = static_cast<char>(i / 2 % 251);
  write_file(scratch / "many.bin", many);
  ASSERT_EQ(::mkfifo((scratch / "pipe.txt").c_str(), 0600), 0);
  write_file(scratch / "text.txt", std::string(1000, 'a'));
  succeed(megalith({"prepare", "--text", "text.txt", "--tokenizer", "bytes", "--out", "data"}), scratch);
  succeed(signalled_run(0, {"train.steps=1", "data.train=data/train.bin", "model.vocab=0"}), scratch);
  const Args generate{"generate", "--checkpoint", "run", "--prompt", "a", "--samples", "1000000", "--batch", "1"},
      evaluate{"evaluate", "--checkpoint", "run", "--data", "many.bin"},
      prepare{"prepare", "--text", "pipe.txt", "--tokenizer", "bytes", "--out", "prepared"};  // nobody writes into it
  for (const Args& args : {megalith(generate), megalith(evaluate), megalith(prepare), mpirun(2, generate)}) {
    Process process(args, scratch.folder());
    const double start = now();
    while (now() - start < 1 || (Process::ranks().empty() && process.running() && now() - start < 20)) sleep_for(0.01);
    ASSERT_TRUE(process.running()) << process.wait().text();
    ::kill(-process.pid(), SIGINT);
    const Result result = process.wait(30);
    EXPECT_FALSE(result.timed_out);
    EXPECT_TRUE(args == mpirun(2, generate) ? result.status != 0 : result.status == 128 + SIGINT) << result.text();
    EXPECT_TRUE(Process::ranks_end(10));
  }
}

// Slurm's batch script goes back into the queue for a run that a signal has ended, and for no other.
TEST(TrainSlurm, requeues_what_a_signal_has_ended) {
  const Scratch scratch;
  const auto tool = [&](const std::string& name, const std::string& text) {
    write_file(scratch / "tools/" + name, "#!/bin/sh\n" + text + "\n");
    fs::permissions(scratch / "tools/" + name, fs::perms::owner_all);
  };
  tool("scontrol", "echo \"scontrol $*\"");
  for (const auto& [status, pmix] : {std::pair{0, "pmix"}, {1, "pmix"}, {75, "pmix"}, {75, "none"}, {143, "none"}}) {
    SCOPED_TRACE(status);
    tool("srun",
         fmt::format("[ $1 != --mpi=list ] || {{ echo {}; exit 0; }}\necho \"srun $*\"\nexit {}", pmix, status));
    const Result result =
        run({"bash", MEGALITH_SOURCE_DIR "/docker/train.slurm", "config.toml", "run.output=a b"}, scratch.folder(), 30,
            "export PATH=$PWD/tools:$PATH SLURM_CPUS_PER_TASK=2 SLURM_JOB_ID=17 MEGALITH='" +
                place("MEGALITH_PROGRAM", MEGALITH_PROGRAM) + "'");
    EXPECT_EQ(result.status, status) << result.text();
    EXPECT_EQ(count(result.out, "scontrol requeue 17\n"), status == 75 ? 1u : 0u) << result.text();
    EXPECT_EQ(count(result.out, fmt::format("srun --mpi={} --kill-on-bad-exit=1", pmix)), 1u) << result.text();
    EXPECT_EQ(count(result.out, "communication.rendezvous="), std::string(pmix) == "none" ? 1u : 0u) << result.text();
  }
}

}  // namespace
}  // namespace megalith::e2e
