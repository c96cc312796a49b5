// Training on the GPU, through the program: the courses of ../shared/reference in fp32 and in bf16, the same bits twice
// and with recomputation, checkpoints carried between GPU and CPU, and several ranks on one GPU.
#include "kernels/stream/device.h"
#include "tests/device/device.h"
#include "tests/end_to_end/layout.h"

namespace megalith::e2e {
namespace {

class GpuTraining : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_REFERENCE();
    if (const std::string why = test::no_device(); !why.empty()) GTEST_SKIP() << why;
    write_reference_config(scratch_ / "config.toml", reference(GetParam()), reference(GetParam()));
  }
  // Trains from the beginning, or from where it was left.
  void train_on(const std::string& device, Args overrides = {}, int ranks = 1) {
    overrides.push_back("run.device=" + device);
    train(scratch_.folder(), ranks, overrides);
  }
  Course found() const { return {read_steps(scratch_ / "run"), exported_weights(scratch_.folder(), scratch_ / "run")}; }
  void expect_the_course_of_the_reference() {
    fmt::print("  {}\n", expect_same_course(found(), reference_course(reference(GetParam()))));
  }
  void expect_the_course_in(int ranks, const std::string& words, Args overrides) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, words));
    std::filesystem::remove_all(scratch_ / "run");
    const Args layout = overrides_of(words);
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    train_on("cuda", overrides, ranks);
    expect_the_course_of_the_reference();
  }
  int64_t last_step() const { return static_cast<int64_t>(reference_course(reference(GetParam())).steps.size()); }
  std::string last_checkpoint(const std::string& run) const {
    return scratch_ / (run + "/checkpoints/" + step_name(last_step()));
  }

  const Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(Of, GpuTraining, testing::Values("tiny", "small"),
                         [](const auto& suite) { return suite.param; });

TEST_P(GpuTraining, fp32_takes_the_course_of_the_reference) {
  train_on("cuda");
  expect_the_course_of_the_reference();
}

// Tensor by tensor, so that a failure says where it begins.
TEST_P(GpuTraining, no_tensor_of_a_step_differs_from_the_cpu) {
  for (const std::string compute : {"fp32", "bf16"}) {
    const Result result = run(megalith({"verify", "config.toml", "run.device=cuda", "precision.compute=" + compute,
                                        "--against", "run.device=cpu", "--steps", "2"}),
                              scratch_.folder());
    EXPECT_EQ(result.status, 0) << compute << "\n" << result.text();
  }
}

// How far bf16 may lead is what it does on the CPU, twice over: rounding in other places, as tensor parallelism does on
// the CPU, was seen to lead 1.9 times as far.
TEST_P(GpuTraining, bf16_stays_as_near_to_the_reference_as_on_the_cpu) {
  struct Distance {
    double loss = 0, norm = 0;
  };
  const std::vector<Step> want = reference_course(reference(GetParam())).steps;
  const auto distance = [&](const std::string& device) {
    train_on(device, {"precision.compute=bf16", "run.output=" + device});
    const std::vector<Step> steps = read_steps(scratch_ / device);
    EXPECT_EQ(steps.size(), want.size());
    Distance d;
    for (size_t i = 0; i < std::min(steps.size(), want.size()); i++) {
      d.loss = std::max(d.loss, std::abs(steps[i].loss - want[i].loss));
      d.norm = std::max(d.norm, std::abs(steps[i].grad_norm / want[i].grad_norm - 1));
    }
    return d;
  };
  const Distance cpu = distance("cpu"), gpu = distance("cuda");
  EXPECT_LE(gpu.loss, 2 * cpu.loss);
  EXPECT_LE(gpu.norm, 2 * cpu.norm);
  fmt::print("  loss {:.1e} (CPU {:.1e}), gradient norm {:.1e} (CPU {:.1e})\n", gpu.loss, cpu.loss, gpu.norm, cpu.norm);
}

TEST_P(GpuTraining, the_same_bits_twice_and_with_recomputation) {
  for (const std::string compute : {"fp32", "bf16"}) {
    SCOPED_TRACE(compute);
    const auto run = [&](const std::string& name, const std::string& recompute) {
      train_on("cuda", {"precision.compute=" + compute, "memory.activation_checkpointing=" + recompute,
                        "run.output=" + compute + name});
      return last_checkpoint(compute + name);
    };
    const std::string one = run("one", "none");
    expect_same_rank_files(one, run("two", "none"));
    expect_same_rank_files(one, run("each", "each"));
  }
}

TEST_P(GpuTraining, the_same_bits_as_graphs) {
  for (const std::string compute : {"fp32", "bf16"}) {
    SCOPED_TRACE(compute);
    const auto run = [&](const std::string& graphs) {
      train_on("cuda", {"precision.compute=" + compute, "run.cuda_graphs=" + graphs, "run.output=" + compute + graphs});
      return last_checkpoint(compute + graphs);
    };
    expect_same_rank_files(run("false"), run("true"));
    EXPECT_NE(read_file(scratch_ / (compute + "true/log.txt")).find("run.cuda_graphs: "), std::string::npos);
  }
}

TEST_P(GpuTraining, resumes_with_the_same_bits) {
  for (const std::string compute : {"fp32", "bf16"}) {
    SCOPED_TRACE(compute);
    const std::string precision = "precision.compute=" + compute;
    train_on("cuda", {precision, "run.output=whole" + compute});
    train_on("cuda", {precision, "run.output=halves" + compute, "train.steps=3"});
    train_on("cuda", {precision, "run.output=halves" + compute});
    expect_same_rank_files(last_checkpoint("whole" + compute), last_checkpoint("halves" + compute));
  }
}

TEST_P(GpuTraining, goes_on_on_the_cpu_and_back) {
  train_on("cuda", {"train.steps=2"});
  train_on("cpu", {"train.steps=5"});
  train_on("cuda");
  expect_the_course_of_the_reference();
}

TEST_P(GpuTraining, several_ranks_share_one_gpu) {
  for (const auto& [ranks, words] : std::vector<std::pair<int, std::string>>{{2, "full_shard microbatch=1"},
                                                                             {2, "tensor=2 sequence"},
                                                                             {2, "pipeline=2 microbatch=1"},
                                                                             {4, "tensor=2 pipeline=2 gpipe"},
                                                                             {4, "shard_grad_op shard=2 recompute"}})
    expect_the_course_in(ranks, words, {"communication.backend=mpi"});
}

TEST_P(GpuTraining, each_rank_on_a_gpu_of_its_own) {
  if (device::count() < 2) GTEST_SKIP() << "there is one GPU";
  for (const auto& [ranks, words] :
       std::vector<std::pair<int, std::string>>{{2, "full_shard microbatch=1"},
                                                {2, "tensor=2 sequence"},
                                                {2, "pipeline=2 microbatch=1"},
                                                {4, "tensor=2 pipeline=2 microbatch=1"},
                                                {4, "shard_grad_op shard=2 recompute microbatch=1"},
                                                {8, "tensor=2 sequence pipeline=2 full_shard microbatch=1"}})
    if (ranks <= device::count()) expect_the_course_in(ranks, words, {});
}

// Refused before training, with the plan's table.
TEST_P(GpuTraining, too_little_memory_is_refused_with_the_plan) {
  const Result result = run(megalith({"train", "config.toml", "run.device=cuda", "batch.global_batch_size=4000000",
                                      "batch.microbatch_size=4000000"}),
                            scratch_.folder());
  EXPECT_EQ(result.status, 1) << result.text();
  for (const char* words : {"this run needs", "GiB on each GPU", "saved", "workspace"})
    EXPECT_NE(result.err.find(words), std::string::npos) << words << "\n" << result.text();
}

TEST_P(GpuTraining, more_ranks_than_gpus_are_refused) {
  const int ranks = device::count() + 1;
  const Result result = run(mpirun(ranks, {"train", "config.toml", "run.device=cuda"}), scratch_.folder());
  EXPECT_EQ(result.status, 1) << result.text();
  EXPECT_NE(result.err.find("needs its own GPU"), std::string::npos) << result.text();
}

}  // namespace
}  // namespace megalith::e2e
