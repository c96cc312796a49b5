// The files of a run, in the order in which they reach the disk: a checkpoint stands for steps that metrics.jsonl has.
#include <fstream>

#include "kernels/system/file_calls.h"
#include "tests/data/scratch.h"
#include "tests/recorded_files.h"
#include "trainer/log/log.h"
#include "trainer/session/file_session.h"
#include "trainer/train/run.h"

namespace megalith {
namespace {

void expect_metrics_before_checkpoints(bool beside) {
  const test::Scratch scratch;
  scratch.write("train.bin", std::string(4000, '\1'));
  const std::string run = scratch.path("run");
  const Config config = parse_config(
      fmt::format("[model]\nlayers = 1\nhidden = 8\nheads = 1\nvocab = 300\ncontext = 8\n"
                  "[batch]\nglobal_batch_size = 2\nmicrobatch_size = 2\n[data]\ntrain = \"{}\"\n[train]\nsteps = 3\n"
                  "[checkpoint]\nevery = 1\nkeep = 2\nasynchronous = {}\n[run]\noutput = \"{}\"\n",
                  scratch.path("train.bin"), beside, run),
      "test", {});
  const test::RecordedFiles recorded;
  const FileSession session("", {}, 1);
  megalith::Run(config, session).train();
  log_to_console();
  std::vector<FileEvent> events = recorded.events();
  if (beside) std::erase_if(events, [](const FileEvent& e) { return e.path.ends_with("/metrics.jsonl"); });
  EXPECT_EQ(test::order_fault(events), "") << "but for lines of later steps, all is flushed when something gets a name";

  // How many lines the disk is known to have when a checkpoint gets its name.
  int64_t written = 0, flushed = 0, checkpoints = 0;
  for (const FileEvent& e : recorded.events()) {
    const bool metrics = e.path == run + "/metrics.jsonl";
    if (metrics && e.call == FileCall::write) written++;
    if (metrics && e.call == FileCall::sync) flushed = written;
    if (e.call != FileCall::rename || e.to.find("/step-") == std::string::npos) continue;
    EXPECT_GE(flushed, ++checkpoints);
  }
  EXPECT_EQ(checkpoints, 3);
}

TEST(RunFiles, ACheckpointComesAfterTheMetricsOfItsSteps) {
  expect_metrics_before_checkpoints(true);
  expect_metrics_before_checkpoints(false);
}

}  // namespace
}  // namespace megalith
