// Which checkpoint a job goes on from where one of its ranks cannot read the newest: the one before if the checkpoint
// is damaged, and none if the rank is at fault.
#include "trainer/checkpointing/checkpointer.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "kernels/system/file_calls.h"
#include "tests/checkpoints/helpers.h"
#include "tests/mpi/on_all_ranks.h"
#include "trainer/checkpointing/restart_point.h"
#include "trainer/checkpointing/resumer.h"
#include "trainer/job/agreement.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

bool last_rank() { return session().rank() == session().size() - 1; }

// Checkpoints of steps 1 and 2, in a folder where all ranks are at home.
class Resume : public ::testing::Test {
 protected:
  Resume() : home_(fs::current_path()) {
    const std::string shared = session().broadcast_text(folder_.path());
    together(session(), [&] { fs::current_path(shared); });
    config_.checkpoint.directory = "checkpoints";
    SmallRun run = make();
    Checkpointer checkpointer(config_, session(), run.trainer);
    for (int64_t step : {1, 2}) checkpointer.save({.step = step, .sequences = 5 * step});
  }
  ~Resume() override {
    session().all_gather_text("done");
    fs::current_path(home_);
  }

  SmallRun make() { return on_all_ranks(config_); }

  // The step, or the error; the same on all ranks.
  std::string resume() {
    SmallRun run = make();
    try {
      const auto progress = Resumer(config_, session(), run.trainer).resume();
      return progress ? fmt::format("step {}", progress->step) : "from the start";
    } catch (const JobError& e) {
      return e.what();
    }
  }

  const test::TemporaryFolder folder_;
  fs::path home_;
  Config config_ = small_config();
};

TEST_F(Resume, TheNewestIsTaken) { EXPECT_EQ(resume(), "step 2"); }

// The last of three steps was skipped.
TEST_F(Resume, WhatWasSkippedGoesOn) {
  SmallRun run = make();
  for (int64_t s : {0, 1}) run.step(s);
  run.trainer.stage().observe([](const std::string& name, int64_t, Tensor rows) {
    if (name == "loss") rows.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_TRUE(run.step(2).skipped());
  run.trainer.stage().observe({});
  Checkpointer(config_, session(), run.trainer).save({.step = 3, .sequences = 15, .skipped = 4, .skipped_in_a_row = 1});

  SmallRun again = make();
  const auto progress = Resumer(config_, session(), again.trainer).resume();
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->step, 3);
  EXPECT_EQ(progress->sequences, 15);
  EXPECT_EQ(progress->skipped, 4);
  EXPECT_EQ(progress->skipped_in_a_row, 1);
  const Optimizer::UpdateCounts history = again.trainer.optimizer().update_counts(again.runtime.stream);
  EXPECT_EQ(history.updates, 2);
  EXPECT_EQ(history.skipped, 1);
  EXPECT_EQ(history.norms, run.trainer.optimizer().update_counts(run.runtime.stream).norms);
  EXPECT_EQ(history.norms.size(), 2u);
  for (int64_t s : {3, 4}) {
    EXPECT_EQ(run.step(s).grad_norm, again.step(s).grad_norm);
    for (size_t u = 0; u < run.units().size(); u++)
      EXPECT_EQ(values_of(run.units()[u].master()), values_of(again.units()[u].master())) << s << " " << u;
  }
}

// One that holds what is not finite is written and said to be so; nobody goes on from it or deletes others for it.
TEST_F(Resume, WhatIsNotFiniteIsNotGoneOnFrom) {
  config_.checkpoint.keep = 1;
  config_.checkpoint.settle = 0;
  SmallRun run = make();
  Checkpointer checkpointer(config_, session(), run.trainer);
  if (session().rank() == 0) run.units().front().master().data<float>()[0] = std::numeric_limits<float>::infinity();
  const SavedCheckpoint saved = checkpointer.save({.step = 3, .sequences = 15});
  EXPECT_EQ(saved.path, "checkpoints/step-00000003");
  EXPECT_NE(saved.not_finite.find("not finite, in parameters/"), std::string::npos) << saved.not_finite;
  EXPECT_EQ(CheckpointStore("checkpoints").usable(), (std::vector<std::string>{"checkpoints/step-00000002"}))
      << "of the two before, which were stable, one was enough";
  EXPECT_EQ(resume(), "step 2");
  config_.checkpoint.resume = saved.path;
  EXPECT_EQ(resume(), "step 3") << "unless it is named";
  config_.checkpoint.resume = "auto";
  session().broadcast_text("resumed");
  if (session().rank() == 0) fs::remove_all("checkpoints/step-00000002");
  session().broadcast_text("removed");
  EXPECT_EQ(resume(), "from the start");
}

// What trouble has ended goes on from before it.
TEST_F(Resume, TroubleHasTheOneBeforeItTaken) {
  SmallRun run = make();
  Checkpointer checkpointer(config_, session(), run.trainer);
  Stability stability;
  for (int64_t s : {1, 2, 3}) stability.record(s, s == 3, 3);
  checkpointer.save({.step = 3, .sequences = 15, .stability = stability}, true);
  const RestartPoint back = choose_restart(config_.checkpoint, session(), stability, {.since = 2, .stable = false});
  EXPECT_EQ(back.path, "checkpoints/step-00000001");
  EXPECT_EQ(back.step, 1);
  EXPECT_EQ(back.stable_after, 1);
  EXPECT_EQ(back.suspects,
            (std::vector<std::string>{"checkpoints/step-00000003.suspect-1", "checkpoints/step-00000002.suspect-1"}));
  EXPECT_EQ(resume(), "step 1");
}

// Half as many bytes, and no bit is lost; where state is kept in fp32 again, it goes on from the same values.
TEST_F(Resume, StateInBf16) {
  for (double on_host : {0.0, 1.0}) {
    const Config before = config_;
    PrecisionConfig& precision = config_.precision;
    precision.compute = ComputeType::bf16;
    precision.master = precision.moments = StorageType::bf16;
    precision.stochastic_rounding = true;
    config_.memory.offload_optimizer = on_host;
    SmallRun run = make();
    for (int64_t s : {0, 1, 2}) run.step(s);
    config_.checkpoint.directory = fmt::format("bf16_{}", on_host);
    Checkpointer(config_, session(), run.trainer).save({.step = 3, .sequences = 15});
    const Manifest manifest = CheckpointReader(config_.checkpoint.directory + "/step-00000003").manifest();
    for (const FileRecord& file : manifest.files)
      for (const DatasetRecord& dataset : file.datasets) EXPECT_EQ(dataset.dtype, DType::bf16) << dataset.dataset;

    SmallRun again = make();
    ASSERT_TRUE(Resumer(config_, session(), again.trainer).resume());
    for (int64_t s : {3, 4}) {
      EXPECT_EQ(run.step(s).grad_norm, again.step(s).grad_norm);
      for (size_t u = 0; u < run.units().size(); u++)
        EXPECT_EQ(values_of(run.units()[u].master()), values_of(again.units()[u].master())) << s << " " << u;
    }

    precision.master = precision.moments = StorageType::fp32;
    precision.stochastic_rounding = false;
    SmallRun wide = make();
    ASSERT_TRUE(Resumer(config_, session(), wide.trainer).resume());
    EXPECT_EQ(wide.units()[1].master().dtype(), DType::f32);
    for (float v : values_of(wide.units()[1].master())) EXPECT_EQ(v, static_cast<float>(bfloat16(v)));
    EXPECT_GT(wide.step(3).loss, 0);
    config_ = before;
  }
}

// They have no state in checkpoints, so a resumed run continues with the same bits, also in another precision.
TEST_F(Resume, ProductsInEightBits) {
  config_.model.hidden = 64;
  config_.model.heads = 4;
  config_.model.context = config_.batch.sequence_length = 16;
  config_.precision.compute = ComputeType::bf16;
  config_.precision.products = ProductType::fp8;
  config_.checkpoint.directory = "fp8";
  SmallRun run = make();
  for (int64_t s : {0, 1}) run.step(s);
  Checkpointer(config_, session(), run.trainer).save({.step = 2, .sequences = 10});
  const StepScalars expected = run.step(2);
  SmallRun again = make();
  ASSERT_TRUE(Resumer(config_, session(), again.trainer).resume());
  EXPECT_EQ(again.step(2).grad_norm, expected.grad_norm);
  EXPECT_EQ(weights_of(again), weights_of(run));
  config_.precision.products = ProductType::compute;
  SmallRun wide = make();
  ASSERT_TRUE(Resumer(config_, session(), wide.trainer).resume());
  const StepScalars in_bf16 = wide.step(2);
  EXPECT_NE(in_bf16.loss, expected.loss);
  EXPECT_NEAR(in_bf16.loss, expected.loss, 0.02 * expected.loss);
}

// In every layout the same files, whichever way they were written, though the weights change meanwhile; and what they
// hold is what every rank had, whoever saved it.
TEST_F(Resume, WhatIsSavedBesideStepsIsWhatWasSavedAtOnce) {
  using Set = void (*)(Config&);
  const std::map<int, std::vector<Set>> layouts{
      {1, {[](Config&) {}, [](Config& c) { c.memory.offload_optimizer = 0.5; }}},
      {4,
       {[](Config& c) { c.parallel.sharded_data_parallel_degree = 2; },
        [](Config& c) { c.parallel.sharded_data_parallel_degree = 1; },
        [](Config& c) { c.parallel.tensor_parallel_degree = c.parallel.pipeline_parallel_degree = 2; },
        [](Config& c) {
          c.parallel.pipeline_parallel_degree = 2;
          c.parallel.sharded_data_parallel_degree = 1;
          c.precision.compute = ComputeType::bf16;
          c.precision.master = c.precision.moments = StorageType::bf16;
          c.precision.stochastic_rounding = true;
        }}}};
  const auto found = layouts.find(session().size());
  if (found == layouts.end()) GTEST_SKIP() << "1 or 4 ranks";
  int number = 0;
  for (const Set& set : found->second) {
    Config config = deep_model(8);
    set(config);
    SCOPED_TRACE(described(config));
    config.checkpoint.asynchronous = true;
    config.checkpoint.directory = fmt::format("at_once_{}", number);
    Config beside_config = config;
    beside_config.checkpoint.directory = fmt::format("beside_{}", number++);
    SmallRun run = on_all_ranks(config);
    for (int64_t s : {0, 1}) run.step(s);
    std::vector<std::vector<float>> before;
    const auto all_held = [](SmallRun& of) {
      std::vector<Tensor> all;
      for (const Unit& unit : of.units()) all.push_back(unit.master());
      for (const Optimizer::StateTensors& state : of.trainer.optimizer().state())
        all.insert(all.end(), state.by_unit.begin(), state.by_unit.end());
      return all;
    };
    for (const Tensor& t : all_held(run)) before.push_back(values_of(t));

    const Progress progress{.step = 2, .sequences = 16};
    Checkpointer beside(beside_config, session(), run.trainer);
    const SavedCheckpoint at_once = Checkpointer(config, session(), run.trainer).save(progress);
    beside.begin_save(progress);
    std::optional<SavedCheckpoint> saved;
    double phases = 0;
    int64_t steps = 2, phases_seen = 0;
    while (!saved) {
      phases = run.step(steps++, {.save_phases = beside.phases()}).ranks.save_phases;
      if (!beside.all_ended(phases)) continue;
      saved = beside.advance();
      phases_seen++;
      EXPECT_FALSE(beside.all_ended(phases)) << "votes for one phase end no other";
    }
    EXPECT_EQ(phases_seen, 3);
    EXPECT_EQ(saved->step, 2);
    EXPECT_EQ(saved->not_finite, "");
    EXPECT_FALSE(beside.finish());

    const auto in_config = [](const std::string& path) {
      Manifest manifest = CheckpointReader(path).manifest();
      manifest.state.erase("config");  // which names the folder
      return to_text(manifest);
    };
    EXPECT_EQ(in_config(saved->path), in_config(at_once.path));
    const std::string file = fmt::format("/rank-{:05}.h5", session().rank());
    EXPECT_TRUE(read_file(saved->path + file) == read_file(at_once.path + file)) << file;

    SmallRun again = on_all_ranks(beside_config);
    ASSERT_TRUE(Resumer(beside_config, session(), again.trainer).resume());
    const std::vector<Tensor> loaded = all_held(again), now = all_held(run);
    int changed = 0;
    for (size_t i = 0; i < loaded.size(); i++) {
      EXPECT_EQ(values_of(loaded[i]), before[i]);
      changed += values_of(now[i]) != before[i];
    }
    EXPECT_GT(changed, 0);
  }
}

// A rank whose disk is full while others go on: all learn of it together, nothing is left, and the next save succeeds.
TEST_F(Resume, WhatFailsBesideStepsFailsOnAllRanks) {
  config_.checkpoint.asynchronous = true;
  SmallRun run = make();
  Checkpointer checkpointer(config_, session(), run.trainer);
  for (const FileCall call : {FileCall::reserve, FileCall::write, FileCall::sync, FileCall::rename}) {
    const std::string message = message_of([&] {
      const FileHook hook([&](const FileEvent& e) {
        const bool mine = last_rank() && e.path.find(fmt::format("/rank-{:05}", session().rank())) != std::string::npos;
        return FileFate{mine && e.call == call ? ENOSPC : 0};
      });
      checkpointer.begin_save({.step = 3, .sequences = 15});
      checkpointer.finish();
    });
    const std::string who = session().size() > 1 ? fmt::format("rank {}: ", session().size() - 1) : "";
    EXPECT_TRUE(message.starts_with(who)) << message;
    EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
    EXPECT_FALSE(checkpointer.saving());
    session().broadcast_text("removed");  // by rank 0
    EXPECT_FALSE(fs::exists("checkpoints/.step-00000003.partial"));
    EXPECT_EQ(CheckpointStore("checkpoints").usable().size(), 2u);
    session().broadcast_text("looked");
  }
  checkpointer.begin_save({.step = 3, .sequences = 15});
  ASSERT_EQ(checkpointer.finish().value().path, "checkpoints/step-00000003");
  EXPECT_EQ(resume(), "step 3");
}

// As checkpoints were before steps could be skipped: as many updates as steps.
TEST_F(Resume, WithoutAWordOfSkippedSteps) {
  if (session().rank() == 0) {
    Manifest manifest = CheckpointReader("checkpoints/step-00000002").manifest();
    for (const char* key : {"updates", "skipped", "skipped_in_a_row", "norms", "loss_scale", "overflows", "good_steps"})
      EXPECT_EQ(manifest.state.erase(key), 1u) << key;
    std::ofstream("checkpoints/step-00000002/manifest.json") << to_text(manifest);
  }
  session().broadcast_text("rewritten");
  SmallRun run = make();
  const auto progress = Resumer(config_, session(), run.trainer).resume();
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->step, 2);
  EXPECT_EQ(progress->skipped, 0);
  const Optimizer::UpdateCounts history = run.trainer.optimizer().update_counts(run.runtime.stream);
  EXPECT_EQ(history.updates, 2);
  EXPECT_EQ(history.skipped, 0);
  EXPECT_TRUE(history.norms.empty());
}

TEST_F(Resume, DamageHasTheOneBeforeTaken) {
  const auto files = CheckpointReader("checkpoints/step-00000002").manifest().files;
  session().broadcast_text("read");
  if (session().rank() == 0) {
    std::fstream file("checkpoints/step-00000002/" + files.back().name, std::ios::in | std::ios::out);
    file.seekp(files.back().datasets.back().offset);
    file << "?!";
  }
  session().broadcast_text("damaged");
  EXPECT_EQ(resume(), "step 1");
  EXPECT_TRUE(fs::exists("checkpoints/step-00000002.damaged-1"));
  EXPECT_FALSE(fs::exists("checkpoints/step-00000002"));
}

TEST_F(Resume, ARankThatCanOpenNoFileIsNoDamage) {
  if (session().size() == 1) GTEST_SKIP() << "rank 0 looks for checkpoints, and would fail earlier";
  SmallRun run = make();
  Resumer resumer(config_, session(), run.trainer);
  const std::string message = message_of([&] {
    std::optional<test::FewFiles> none;
    if (last_rank()) none.emplace(0);
    resumer.resume();
  });
  EXPECT_NE(message.find("Too many open files"), std::string::npos) << message;
  EXPECT_EQ(resume(), "step 2");
}

TEST_F(Resume, AFolderThatIsNotSharedIsNoDamage) {
  if (session().size() == 1) GTEST_SKIP() << "shared with nobody";
  const fs::path shared = fs::current_path();
  if (last_rank()) fs::current_path(home_);
  const std::string message = resume();
  EXPECT_TRUE(message.starts_with(fmt::format("rank {}: ", session().size() - 1))) << message;
  EXPECT_NE(message.find("do all ranks see the same folder?"), std::string::npos) << message;
  fs::current_path(shared);
  EXPECT_EQ(resume(), "step 2");
}

}  // namespace
}  // namespace megalith
