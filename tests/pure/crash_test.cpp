// Power fails after any call of a run, from the making of its folder on through saves and prunes and a resume: what was
// published is there, metrics.jsonl has just its steps, the log is a text that goes on, and so does the run.
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoints/reader.h"
#include "checkpoints/store.h"
#include "kernels/system/file_calls.h"
#include "kernels/system/json.h"
#include "tests/crash_states.h"
#include "tests/data/scratch.h"
#include "trainer/log/log.h"
#include "trainer/session/file_session.h"
#include "trainer/train/run.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;
using namespace test;

class RunCrash : public testing::Test {
 protected:
  RunCrash() {
    std::ofstream(scratch_ / "train.bin") << std::string(4000, '\1');
    fs::create_directory(scratch_ / "disk");
    const RecordedDisk recorded(scratch_ / "disk");
    run("disk/run", 2);
    run("disk/run", 3);
    calls_ = recorded.calls();
  }
  ~RunCrash() override { log_to_console(); }

  void run(const std::string& output, int64_t steps) const {
    const Config config =
        parse_config(fmt::format("[model]\nlayers = 1\nhidden = 4\nheads = 1\nvocab = 260\ncontext = 4\n"
                                 "[batch]\nglobal_batch_size = 2\nmicrobatch_size = 2\n[data]\ntrain = "
                                 "\"{}\"\n[optimizer]\ndecay_steps = 3\n[train]\nsteps = {}\n"
                                 "log_every = 1\n[checkpoint]\nevery = 1\nasynchronous = true\nkeep = 1\nsettle = "
                                 "0\n[run]\noutput = \"{}\"\n",
                                 scratch_ / "train.bin", steps, scratch_ / output),
                     "test", {});
    const FileSession session("", {}, 1);
    testing::internal::CaptureStdout();
    try {
      megalith::Run(config, session).train();
    } catch (const Error&) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    log_nowhere();
    testing::internal::GetCapturedStdout();
  }

  // The step that was published by then: its name was flushed, by the thread that saves, among the calls of others.
  int64_t promised(size_t calls) const {
    int64_t step = 0;
    std::string renamed;
    for (size_t i = 0; i < calls; i++) {
      const FileEvent& e = calls_[i].event;
      if (e.call == FileCall::rename && e.to.find("/step-0") != std::string::npos) renamed = e.to;
      if (e.call != FileCall::sync_folder || renamed.empty() || e.path != renamed.substr(0, renamed.rfind('/')))
        continue;
      step = std::stoll(renamed.substr(renamed.rfind('-') + 1));
      renamed.clear();
    }
    return step;
  }

  // Steps that metrics.jsonl has lines of, as far as they can be read.
  static std::vector<int64_t> steps_in(const std::string& path) {
    std::vector<int64_t> steps;
    if (!fs::exists(path)) return steps;
    std::istringstream in(read_file(path));
    for (std::string line; std::getline(in, line);) try {
        const auto object = parse_json(line);
        if (object.is_object() && object.contains("loss")) steps.push_back(object.at("step").get<int64_t>());
      } catch (const nlohmann::json::exception&) {
      }
    return steps;
  }
  static std::vector<int64_t> first_steps(int64_t last) {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= last; step++) steps.push_back(step);
    return steps;
  }

  std::string broken_promise(const DiskTree& tree, int64_t promised, bool continues) const try {
    spill_tree(tree, scratch_ / "crash");
    const std::string folder = scratch_ / "crash/run";
    const CheckpointListing listing = CheckpointStore(folder + "/checkpoints").list();
    for (const SkippedCheckpoint& s : listing.skipped)
      if (s.published) return s.reason;
    const int64_t newest = listing.complete.empty() ? 0 : CheckpointReader(listing.complete.front()).manifest().step;
    if (newest < promised) return fmt::format("the newest is of step {}, and {} was published", newest, promised);
    for (const std::string& path : listing.complete)
      if (const VerifyReport report = verify_checkpoint(path); !report.damaged.empty()) return report.damaged.front();
    std::vector<int64_t> steps = steps_in(folder + "/metrics.jsonl");
    steps.resize(std::min(steps.size(), static_cast<size_t>(newest)));
    if (steps != first_steps(newest))
      return fmt::format("metrics.jsonl lacks some of the {} steps of the checkpoint", newest);
    if (promised > 0 && read_file(folder + "/log.txt").find(fmt::format("step {}/", promised)) == std::string::npos)
      return "log.txt lacks the step of the checkpoint";
    if (!continues) return "";
    run("crash/run", 3);
    if (steps_in(folder + "/metrics.jsonl") != first_steps(3)) return "the run that goes on has other metrics";
    const std::string log = read_file(folder + "/log.txt");
    const std::string last = log.substr(log.rfind('\n', log.size() - 2) + 1);
    return log.ends_with("\n") && last.find(" done: 3 steps, 6 sequences") != std::string::npos ? ""
                                                                                                : "log.txt: " + log;
  } catch (const Error& e) {
    return e.what();
  }

  CrashStates states(std::string& broken, int64_t go_on_every) {
    return {[this](size_t calls) { return promised(calls); },
            [this, &broken, go_on_every, n = int64_t{0}](const DiskTree& tree, size_t calls) mutable {
              broken = broken_promise(tree, promised(calls), n++ % go_on_every == 0);
              if (!broken.empty()) broken += fmt::format("; after {} of {} calls", calls, calls_.size());
              return broken.empty();
            }};
  }

  QuickFolder scratch_;
  std::vector<DiskCall> calls_;
};

TEST_F(RunCrash, AtAnyCallKeepsItsPromises) {
  SimulatedDisk disk({});
  for (const DiskCall& call : calls_) disk.make(call);
  ASSERT_TRUE(disk.now() == tree_below(scratch_ / "disk")) << "something is written past kernels/system/files.h";
  std::string broken;
  CrashStates all = states(broken, taken("RunCrash.AtAnyCallKeepsItsPromises"));
  EXPECT_TRUE(all.all_hold(SimulatedDisk({}), calls_)) << broken;
  EXPECT_GT(all.counts().distinct, 200);
  fmt::print("  {} moments, {} states, {} of them distinct\n", all.counts().moments, all.counts().states,
             all.counts().distinct);
}

TEST_F(RunCrash, NoFlushCanBeLeftOut) {
  std::string broken;
  expect_flushes_to_count(SimulatedDisk({}), calls_, taken("RunCrash.NoFlushCanBeLeftOut"),
                          [&] { return states(broken, 1 << 20); });
}

}  // namespace
}  // namespace megalith
