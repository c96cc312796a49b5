// Power fails, or a kill comes and power fails later, after any call of a prepare, and the disk forgets what was not
// flushed: the same prepare, started again, makes the same files as one that was never interrupted.
#include <algorithm>

#include "data/corpus/prepare.h"
#include "tests/crash_states.h"
#include "tests/data/scratch.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using namespace test;

class PrepareCrash : public testing::Test {
 protected:
  PrepareCrash() {
    std::string documents;
    for (int i = 0; i < 30; i++) documents += fmt::format("document {} <|endoftext|>", i) + valid_text(40, i);
    text_ = scratch_ / "text.txt";
    std::ofstream(text_) << documents;
    run("whole");
    whole_ = tree_below(scratch_ / "whole");
  }

  void run(const std::string& out) const {
    PrepareOptions options;
    options.corpus.texts = {text_};
    options.corpus.validation_fraction = 0.3;
    options.tokenizer = "bytes";
    options.out = scratch_ / out;
    options.threads = 1;
    options.shard_tokens = 900;
    options.window_bytes = 500;
    options.note_bytes = 700;
    options.note_seconds = 0;
    prepare(options);
  }
  // From what DISK/out holds on; what it does below DISK.
  std::vector<DiskCall> recorded_run() const {
    const RecordedDisk recorded(scratch_ / "disk");
    run("disk/out");
    return recorded.calls();
  }

  // Why it cannot simply be started again; else empty.
  std::string broken_promise(const DiskTree& tree, bool has_returned) const try {
    spill_tree(tree, scratch_ / "crash");
    const std::string out = scratch_ / "crash/out";
    // It had moved all, and the note of that is gone; the disk may still have what was removed last.
    if (fs::exists(out) && !fs::exists(out + "/prepare.partial/publish.json")) {
      fs::remove_all(out + "/prepare.partial");
      if (tree_below(out) == whole_) return "";
      if (has_returned) return "a prepare that had returned has lost its files";
      spill_tree(tree, scratch_ / "crash");
    }
    run("crash/out");
    return tree_below(out) == whole_ ? "" : "it makes other files";
  } catch (const Error& e) {
    return e.what();
  }

  CrashStates states(size_t num_calls, std::string& broken) const {
    return {[=](size_t calls) { return calls == num_calls; },
            [this, num_calls, &broken](const DiskTree& tree, size_t calls) {
              broken = broken_promise(tree, calls == num_calls);
              if (!broken.empty()) broken += fmt::format("; after {} of {} calls", calls, num_calls);
              return broken.empty();
            }};
  }

  QuickFolder scratch_;
  std::string text_;
  DiskTree whole_;
};

TEST_F(PrepareCrash, AtAnyCallItCanBeStartedAgain) {
  fs::create_directory(scratch_ / "disk");
  const std::vector<DiskCall> calls = recorded_run();
  SimulatedDisk disk({});
  for (const DiskCall& call : calls) disk.make(call);
  ASSERT_TRUE(disk.now() == tree_below(scratch_ / "disk")) << "something is written past kernels/system/files.h";
  std::string broken;
  CrashStates all = states(calls.size(), broken);
  EXPECT_TRUE(all.all_hold(SimulatedDisk({}), calls)) << broken;
  EXPECT_GT(all.counts().distinct, 100);
  fmt::print("  {} moments, {} states, {} of them distinct\n", all.counts().moments, all.counts().states,
             all.counts().distinct);
}

TEST_F(PrepareCrash, AfterAKillAsWell) {
  fs::create_directory(scratch_ / "disk");
  const std::vector<DiskCall> first = recorded_run();
  int64_t distinct = 0;
  for (size_t killed = 1; killed < first.size();
       killed += static_cast<size_t>(taken("PrepareCrash.AfterAKillAsWell"))) {
    SimulatedDisk disk({});
    for (size_t i = 0; i < killed; i++) disk.make(first[i]);
    const DiskTree left = disk.now();
    spill_tree(left, scratch_ / "disk");
    if (left.contains("out/tokenizer") && !left.contains("out/prepare.partial/publish.json")) break;  // it is complete
    const std::vector<DiskCall> second = recorded_run();
    std::string broken;
    CrashStates all = states(second.size(), broken);
    ASSERT_TRUE(all.all_hold(disk, second)) << "killed after call " << killed << ": " << broken;
    distinct += all.counts().distinct;
  }
  fmt::print("  {} distinct states\n", distinct);
}

TEST_F(PrepareCrash, NoFlushCanBeLeftOut) {
  fs::create_directory(scratch_ / "disk");
  const std::vector<DiskCall> calls = recorded_run();
  std::string broken;
  expect_flushes_to_count(SimulatedDisk({}), calls, taken("PrepareCrash.NoFlushCanBeLeftOut"),
                          [&] { return states(calls.size(), broken); });
}

}  // namespace
}  // namespace megalith
