// Power fails after any call of a save, a prune, a set-aside or an export, and the disk forgets what was not flushed:
// what was published is there and whole, and a save made after that succeeds. And no flush can be left out unnoticed.
#include <algorithm>

#include "checkpoints/hugging_face.h"
#include "kernels/system/file_calls.h"
#include "tests/checkpoints/helpers.h"
#include "tests/crash_states.h"

namespace megalith {
namespace {

using namespace test;

void publish_step(const std::string& directory, int64_t step) {
  const std::string folder = CheckpointStore(directory).begin(step);
  Manifest manifest{step, {{"samples", step}}, {}};
  for (int rank = 0; rank < 2; rank++) manifest.files.push_back(write_rank(folder, rank, 1, 2));
  store_of(folder).publish(folder, manifest);
}

// A life of a checkpoint directory, and which step was published by when.
struct Life {
  DiskTree before, after;
  std::vector<DiskCall> calls;
  std::vector<std::pair<size_t, int64_t>> published;  // after so many calls
};

Life live(const std::string& directory) {
  write_checkpoint(directory, 1);
  fs::create_directory(directory + "/step-00000002");  // of which a disk has lost the rest
  Life life{.before = tree_below(directory), .after = {}, .calls = {}, .published = {{0, 1}}};
  {
    const RecordedDisk recorded(directory);
    const auto save = [&](int64_t step) {
      publish_step(directory, step);
      life.published.emplace_back(recorded.calls().size(), step);
    };
    save(2);
    CheckpointStore(directory).prune(1);
    const std::string given_up = CheckpointStore(directory).begin(3);
    write_rank(given_up, 0, 1, 2);
    store_of(given_up).remove(given_up);
    save(3);
    life.published.emplace_back(recorded.calls().size(), 2);
    set_aside(CheckpointStore(directory).path_of(3));
    save(3);
    CheckpointStore(directory).prune(1);
    life.calls = recorded.calls();
  }
  life.after = tree_below(directory);
  return life;
}

int64_t promised(const Life& life, size_t calls) {
  int64_t step = 0;
  for (const auto& [when, which] : life.published)
    if (when <= calls) step = which;
  return step;
}

// Why the directory does not keep its promises; else empty.
std::string broken_promise(const std::string& directory, int64_t promised) try {
  const CheckpointListing listing = CheckpointStore(directory).list();
  for (const SkippedCheckpoint& s : listing.skipped)
    if (s.published && !fs::is_empty(s.path)) return s.reason;
  if (listing.complete.empty()) return "no checkpoint is complete";
  for (const std::string& path : listing.complete) {
    const VerifyReport report = verify_checkpoint(path);
    if (!report.damaged.empty()) return report.damaged.front();
    CheckpointReader reader(path);
    if (!reads_right(reader, 2, 1)) return path + " has other values";
  }
  const int64_t newest = CheckpointReader(listing.complete.front()).manifest().step;
  if (newest < promised) return fmt::format("the newest is of step {}, and {} was published", newest, promised);
  publish_step(directory, newest + 1);
  CheckpointStore(directory).prune(1);
  const std::vector<std::string> left = CheckpointStore(directory).usable();
  return left == std::vector{CheckpointStore(directory).path_of(newest + 1)} ? "" : "a save after it went wrong";
} catch (const Error& e) {
  return e.what();
}

CrashStates states_of(const Life& life, const std::string& place, std::string& broken) {
  return {[&](size_t calls) { return promised(life, calls); },
          [&, place](const DiskTree& tree, size_t calls) {
            spill_tree(tree, place);
            broken = broken_promise(place, promised(life, calls));
            if (!broken.empty()) broken += fmt::format("; after {} calls", calls);
            return broken.empty();
          }};
}

TEST(Crash, at_any_call_leaves_what_was_published) {
  const QuickFolder folder;
  const Life life = live(folder / "run");
  SimulatedDisk disk(life.before);
  for (const DiskCall& call : life.calls) disk.make(call);
  ASSERT_TRUE(disk.now() == life.after) << "something is written past kernels/system/files.h";

  std::string broken;
  CrashStates states = states_of(life, folder / "crash", broken);
  EXPECT_TRUE(states.all_hold(SimulatedDisk(life.before), life.calls)) << broken;
  EXPECT_GT(states.counts().distinct, 50);
  fmt::print("  {} moments, {} states, {} of them distinct\n", states.counts().moments, states.counts().states,
             states.counts().distinct);
}

// Some flushes of a folder's names repeat what a later one does for the same promise.
TEST(Crash, no_flush_can_be_left_out) {
  const QuickFolder folder;
  const Life life = live(folder / "run");
  std::string broken;
  const std::vector<size_t> repeated =
      expect_flushes_to_count(SimulatedDisk(life.before), life.calls, taken("Crash.no_flush_can_be_left_out"),
                              [&] { return states_of(life, folder / "crash", broken); });
  for (const size_t place : repeated) {
    const FileEvent& before = life.calls[place - 1].event;
    EXPECT_FALSE(before.call == FileCall::rename && before.path.ends_with(".partial") && before.to.starts_with("step-"))
        << "a checkpoint's own name";
  }
}

// A folder whose maker died before it was flushed is there for the next process, and must stay.
TEST(Crash, after_a_kill_counts_what_the_killed_one_had_not_flushed) {
  const QuickFolder folder;
  fs::create_directory(folder / "run");
  std::vector<DiskCall> first;
  {
    const RecordedDisk recorded(folder / "run");
    make_folders(folder / "run/a/b", "");
    first = recorded.calls();
  }
  for (size_t killed = 0; killed <= first.size(); killed++) {
    SimulatedDisk disk({});
    for (size_t i = 0; i < killed; i++) disk.make(first[i]);
    spill_tree(disk.now(), folder / "run");
    std::vector<DiskCall> second;
    {
      const RecordedDisk recorded(folder / "run");
      make_folders(folder / "run/a/b", "");
      write_checkpoint(folder / "run/a/b", 1);
      second = recorded.calls();
    }
    CrashStates states([&](size_t calls) { return calls == second.size(); },
                       [&](const DiskTree& tree, size_t calls) {
                         if (calls < second.size()) return true;
                         spill_tree(tree, folder / "crash");
                         return CheckpointStore(folder / "crash/a/b").usable().size() == 1;
                       });
    EXPECT_TRUE(states.all_hold(disk, second)) << "killed after call " << killed;
  }
}

// Each file of an export is whole once it has its name, and all are there when it returns.
TEST(Crash, in_an_export_leaves_whole_files_only) {
  const QuickFolder folder;
  const ModelConfig model{.layers = 1, .hidden = 4, .heads = 1, .vocab = 5, .context = 3};
  struct Ones final : TensorSource {
    std::vector<int64_t> shape(const std::string& name) const override {
      return name.ends_with("wte.weight") ? std::vector<int64_t>{5, 4} : std::vector<int64_t>{4};
    }
    void read(const TensorShard& wanted, float* out) override {
      std::fill_n(out, wanted.elements.end - wanted.elements.begin, 1.0f);
    }
  } source;
  fs::create_directory(folder / "out");
  std::vector<DiskCall> calls;
  {
    const RecordedDisk recorded(folder / "out");
    export_hugging_face(source, model, {{"wte.weight", {5, 4}, false}, {"ln_f.bias", {4}, false}}, folder / "out/gpt2");
    calls = recorded.calls();
  }
  const DiskTree whole = tree_below(folder / "out");
  const auto holds = [&](const DiskTree& tree, size_t made) {
    if (made == calls.size() && tree != whole) return false;
    return std::all_of(tree.begin(), tree.end(), [&](const auto& file) {
      return file.first.ends_with(".partial") || whole.at(file.first) == file.second;
    });
  };
  const auto promise = [&](size_t made) { return made == calls.size(); };
  CrashStates states(promise, holds);
  EXPECT_TRUE(states.all_hold(SimulatedDisk({}), calls));
  EXPECT_GT(states.counts().distinct, 10);
  for (const size_t place : flushes_in(SimulatedDisk({}), calls))
    if (calls[place].event.call == FileCall::sync) {
      EXPECT_FALSE(CrashStates(promise, holds).all_hold(SimulatedDisk({}), calls, {place})) << place;
    }
}

}  // namespace
}  // namespace megalith
