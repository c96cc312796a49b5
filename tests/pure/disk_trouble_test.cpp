// A run whose checkpoints cannot be written for a while, or whose folder is removed under it: it goes on.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "checkpoints/store.h"
#include "kernels/system/file_calls.h"
#include "tests/data/scratch.h"
#include "tests/message_of.h"
#include "trainer/log/log.h"
#include "trainer/session/file_session.h"
#include "trainer/train/run.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

class DiskTrouble : public testing::TestWithParam<bool> {
 protected:
  DiskTrouble() {
    scratch_.write("train.bin", std::string(4000, '\1'));
    fs::create_directory(scratch_.path("tokenizer"));
    make_byte_tokenizer()->save(scratch_.path("tokenizer"));
  }
  ~DiskTrouble() override { log_to_console(); }

  // Ten steps, a save after every second, unless overrides say otherwise.
  void train(const std::string& patience, int status = 0, const std::vector<std::string>& overrides = {}) const {
    const Config config = parse_config(
        fmt::format("[model]\nlayers = 1\nhidden = 8\nheads = 1\nvocab = 300\ncontext = 8\n"
                    "[batch]\nglobal_batch_size = 2\nmicrobatch_size = 2\n[data]\ntrain = \"{}\"\ntokenizer = "
                    "\"{}\"\n[train]\nsteps = 10\nlog_every = 1\n[checkpoint]\nevery = 2\nasynchronous = {}\n"
                    "patience = {}\n[run]\noutput = \"{}\"\n",
                    scratch_.path("train.bin"), scratch_.path("tokenizer"), GetParam(), patience, run_),
        "test", overrides);
    const FileSession session("", {}, 1);
    EXPECT_EQ(megalith::Run(config, session).train(), status);
  }
  std::string log() const { return read_file(run_ + "/log.txt"); }
  static size_t count(const std::string& text, const std::string& words) {
    size_t n = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) n++;
    return n;
  }
  void expect_all_steps() const {
    const std::string metrics = read_file(run_ + "/metrics.jsonl");
    for (int step = 1; step <= 10; step++)
      EXPECT_EQ(count(metrics, fmt::format("{{\"step\":{},\"loss\"", step)), 1u) << step << " in " << metrics;
    EXPECT_EQ(count(log(), " done: 10 steps"), 1u) << log();
  }

  const test::Scratch scratch_;
  const std::string run_ = scratch_.path("run"), checkpoints_ = run_ + "/checkpoints";
};

// As many calls as are made in so many saves find the disk full.
FileHook full_disk(int64_t saves) {
  return FileHook([saves, n = int64_t{0}](const FileEvent& e) mutable {
    return FileFate{e.call == FileCall::reserve && n++ < saves ? ENOSPC : 0};
  });
}

TEST_P(DiskTrouble, AFullDiskCostsTheCheckpointsOfItsTime) {
  {
    const FileHook hook = full_disk(3);
    train("240");
  }
  expect_all_steps();
  EXPECT_EQ(steps_of(CheckpointStore(checkpoints_).usable()), (std::set<int64_t>{8, 10}));
  EXPECT_EQ(count(log(), "warning: no checkpoint could be written; the run continues and tries again: "), 3u) << log();
  EXPECT_EQ(count(log(), "No space left on device"), 3u);
}

// The save after step 20 fails, and no other is due before the end. The steps that follow take their time until it is
// tried again.
TEST_P(DiskTrouble, ASaveThatFailedIsTriedAgainByTime) {
  {
    const FileHook hook([this, writes = 0, saves = 0](const FileEvent& e) mutable {
      if (e.call == FileCall::write && e.path == run_ + "/metrics.jsonl" && ++writes > 20 && saves < 2)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // a tenth of the patience is 300
      return FileFate{e.call == FileCall::reserve && saves++ == 0 ? ENOSPC : 0};
    });
    train("0.05", 0, {"train.steps=39", "checkpoint.every=20"});
  }
  const std::set<int64_t> saved = steps_of(CheckpointStore(checkpoints_).usable());
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_GT(*saved.begin(), 20);
  EXPECT_LT(*saved.begin(), 39);
  EXPECT_EQ(*saved.rbegin(), 39);
}

// There are no steps to go on with.
TEST_P(DiskTrouble, TheLastCheckpointIsWaitedFor) {
  {
    const FileHook hook = full_disk(7);
    train("0.1");
  }
  expect_all_steps();
  EXPECT_EQ(steps_of(CheckpointStore(checkpoints_).usable()), (std::set<int64_t>{10}));
}

TEST_P(DiskTrouble, ARunWhosePatienceIsOverEnds) {
  const FileHook hook = full_disk(1000000);
  const std::string message = message_of([&] { train("0.005"); });
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_NE(message.find("minutes have passed without one, and checkpoint.patience = 0.005"), std::string::npos)
      << message;
  EXPECT_TRUE(CheckpointStore(checkpoints_).usable().empty());
}

// How long a save takes cannot be told then, and it is tried.
TEST_P(DiskTrouble, ASignalOnAFullDiskHasTheRunSavedOnceThereIsRoom) {
  {
    const FileHook hook([this, writes = 0, saves = 0](const FileEvent& e) mutable {
      if (e.call == FileCall::write && e.path == run_ + "/metrics.jsonl" && ++writes == 3) ::kill(::getpid(), SIGUSR1);
      const bool rate = e.path.find("/.rate.") != std::string::npos && e.call == FileCall::write;
      return FileFate{rate || (e.call == FileCall::reserve && saves++ < 3) ? ENOSPC : 0};
    });
    train("0.1", ended_by_signal);
  }
  ::signal(SIGUSR1, SIG_DFL);
  const std::string steps = read_file(run_ + "/metrics.jsonl");
  EXPECT_EQ(*steps_of(CheckpointStore(checkpoints_).usable()).rbegin(),
            static_cast<int64_t>(count(steps, "\"loss\":")));
}

TEST_P(DiskTrouble, WhatIsRemovedUnderARunIsThereAgain) {
  for (const std::string& removed : {run_ + "/log.txt", run_ + "/metrics.jsonl", run_ + "/tokenizer", run_}) {
    SCOPED_TRACE(removed);
    fs::remove_all(run_);
    {
      const FileHook hook([&, n = 0](const FileEvent& e) mutable {
        if (e.call == FileCall::write && e.path == run_ + "/metrics.jsonl" && ++n == 5) fs::remove_all(removed);
        return FileFate{};
      });
      train("240");
    }
    expect_all_steps();
    EXPECT_GE(count(log(), "was removed during this run"), 1u) << log();
    EXPECT_TRUE(steps_of(CheckpointStore(checkpoints_).usable()).contains(10));
    for (const char* name : {"config.toml", "tokenizer", "lock"}) EXPECT_TRUE(fs::exists(run_ + "/" + name)) << name;
    EXPECT_EQ(count(log(), "or its lock was removed"), removed == run_ ? 2u : 0u) << "that of the checkpoints as well";
    log_to_console();
  }
}

INSTANTIATE_TEST_SUITE_P(Pure, DiskTrouble, testing::Bool(),
                         [](const auto& suite) { return suite.param ? "beside_the_steps" : "between_the_steps"; });

}  // namespace
}  // namespace megalith
