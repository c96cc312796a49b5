// The program's parts, on the simulated GPU: a run with checkpoints and what follows from it, moved between a GPU and
// the CPU; inference; and the layout verifier, which compares every tensor of a step.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/corpus/prepare.h"
#include "kernels/system/json.h"
#include "tests/data/scratch.h"
#include "tests/long_tests.h"
#include "tests/mpi/session.h"
#include "tests/trace_faults.h"
#include "trainer/inference/inference.h"
#include "trainer/replay/replay.h"
#include "trainer/train/run.h"
#include "trainer/train/step_profiler.h"
#include "trainer/verify/verify.h"

namespace megalith {
namespace {

class SimulatedGpuRun : public testing::Test {
 protected:
  SimulatedGpuRun() {
    std::string text;
    for (int i = 0; i < 200; i++) text += fmt::format("{} bottles of beer on the wall. ", 200 - i);
    PrepareOptions options;
    options.corpus.texts = {scratch_.write("text", text)};
    options.corpus.validation_fraction = 0.1;
    options.tokenizer = "bytes";
    options.out = scratch_.path("data");
    prepare(options);
    scratch_.write("config.toml", fmt::format("[model]\nlayers = 2\nhidden = 16\nheads = 2\ncontext = 8\n"
                                              "[batch]\nglobal_batch_size = 4\nmicrobatch_size = 2\n"
                                              "[optimizer]\nlearning_rate = 1e-2\nwarmup_steps = 1\n"
                                              "[data]\ntrain = \"{0}/train.bin\"\nvalidation = \"{0}/validation.bin\"\n"
                                              "tokenizer = \"{0}/tokenizer\"\n"
                                              "[train]\nsteps = 4\nevaluate_every = 2\nevaluate_batches = 1\n"
                                              "[checkpoint]\nevery = 2\n",
                                              scratch_.path("data")));
  }

  Config config(const std::string& run, const std::string& device, std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.end(), {"run.output=" + scratch_.path(run), "run.device=" + device});
    return load_config(scratch_.path("config.toml"), overrides);
  }
  std::vector<nlohmann::json> told(const std::string& run) const {
    std::ifstream in(scratch_.path(run) + "/metrics.jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);)
      if (const auto object = nlohmann::json::parse(line); !object.contains("start") && !object.contains("time_after"))
        lines.push_back(object);
    return lines;
  }
  void expect_same_course(const std::string& a, const std::string& b) const {
    const auto one = told(a), two = told(b);
    ASSERT_EQ(one.size(), 6u);  // 4 steps, 2 evaluations
    ASSERT_EQ(two.size(), 6u);
    for (size_t i = 0; i < one.size(); i++)
      for (const auto& [key, tolerance] :
           std::map<std::string, double>{{"step", 0}, {"loss", 1e-5}, {"grad_norm", 1e-4}, {"validation_loss", 1e-5}}) {
        ASSERT_EQ(one[i].contains(key), two[i].contains(key)) << i << ": " << key;
        if (!one[i].contains(key)) continue;
        const double v = one[i].at(key);
        EXPECT_NEAR(v, two[i].at(key).get<double>(), tolerance * v) << i << ": " << key;
      }
  }

  const test::Scratch scratch_;
};

// A host that fills the GPU's launch queue while it launches a step reads the scalars of the step before only then.
TEST_F(SimulatedGpuRun, AStepEndsWhenTheGpuEndsIt) {
  Config c = config("times", "cuda");
  c.model.vocab = 256;
  RankContext work(c, session());
  work.rehearse();
  work.open();
  StepProfiler profiler(c, session(), work, {});
  Stream& s = work.runtime->stream;
  const double before = StepClock::host_now(), start = profiler.start(0);
  const double late = start - before;  // at most so much later than the GPU was ready the host says that it was
  const auto launch = [&](int64_t step) {
    profiler.begin_launch(step);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    profiler.end_launch(step);
    s.synchronize();
    return StepClock::host_now();
  };
  const double first = launch(1), second = launch(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double one = profiler.report(1, {}).ended, two = profiler.report(2, {}).ended;
  EXPECT_GE(one, start + 0.019);
  EXPECT_LE(one, first + late);
  EXPECT_GE(two, first + 0.019);
  EXPECT_LE(two, second + late);
}

TEST_F(SimulatedGpuRun, CheckpointsMoveBetweenGpuAndCpu) {
  megalith::Run(config("cpu", "cpu"), session()).train();
  megalith::Run(config("gpu", "cuda"), session()).train();
  expect_same_course("cpu", "gpu");
  // Two steps on one, checkpoint, two on the other; what is saved waits on the host.
  for (const auto& [first, second] : {std::pair{"cpu", "cuda"}, {"cuda", "cpu"}}) {
    const std::string run = fmt::format("{}_then_{}", first, second);
    const std::vector<std::string> on_host{"memory.offload_optimizer=1", "memory.offload_parameters=true"};
    megalith::Run(config(run, first, on_host), session()).train();
    const std::string checkpoints = scratch_.path(run) + "/checkpoints/";
    std::filesystem::remove_all(checkpoints + "step-00000004");
    megalith::Run(config(run, second, on_host), session()).train();
    expect_same_course("cpu", run);
  }
}

// Events in the stream are the clock, where the stream runs late.
TEST_F(SimulatedGpuRun, TimeGoesToOpsAndWaitsOfTheGpu) {
  megalith::Run(config("gpu", "cuda",
                       {"train.trace_steps=2-3", "model.layers=4", "memory.activation_checkpointing=each",
                        "memory.offload_activations=true"}),
                session())
      .train();
  for (const nlohmann::json& line : told("gpu")) {
    if (!line.contains("step_seconds")) continue;
    const int64_t step = line["step"];
    EXPECT_GT(line["memory_measured"]["host"], 0);
    EXPECT_GT(line["memory_measured"]["device"], 0) << "step " << step;
    ASSERT_EQ(line.contains("time"), step == 2 || step == 3) << "those that are traced: " << line;
    if (!line.contains("time")) continue;
    for (const char* name : {"GEMM", "attention", "elementwise", "optimizer", "input", "launches"})
      EXPECT_GT(line["time"].value(name, 0.0), 0) << name;
  }
  const nlohmann::json trace = parse_json(read_file(scratch_.path("gpu") + "/trace-2-3.json"));
  EXPECT_EQ(test::trace_faults(trace), std::vector<std::string>{});
  std::map<std::string, int> names;
  for (const nlohmann::json& e : trace["traceEvents"]) names[e["name"]]++;
  EXPECT_EQ(names["step 2"] + names["step 3"], 2);
  EXPECT_EQ(names["attention_forward"], 2 * 2 * 4 * 2) << "steps, microbatches, layers, and each is recomputed";
  EXPECT_GT(names["to_host"], 0);
  EXPECT_EQ(names["to_host"], names["to_device"]);
}

// With evaluations between the steps, and resumed.
TEST_F(SimulatedGpuRun, GraphsChangeNoBit) {
  const auto train = [&](const std::string& run, const std::string& graphs, const std::string& steps) {
    megalith::Run(config(run, "cuda", {"run.cuda_graphs=" + graphs, "train.steps=" + steps, "optimizer.decay_steps=5"}),
                  session())
        .train();
  };
  const auto file = [&](const std::string& run, int step) {
    return read_file(scratch_.path(run) + fmt::format("/checkpoints/step-{:08}/rank-00000.h5", step));
  };
  const auto count = [&](const std::string& run, const char* words) {
    const std::string log = read_file(scratch_.path(run) + "/log.txt");
    int found = 0;
    for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) found++;
    return found;
  };
  train("one by one", "false", "5");
  train("graphs", "true", "3");
  EXPECT_TRUE(file("graphs", 2) == file("one by one", 2));
  train("graphs", "true", "5");
  EXPECT_TRUE(file("graphs", 5) == file("one by one", 5));
  EXPECT_EQ(count("one by one", "run.cuda_graphs: "), 0);
  EXPECT_EQ(count("graphs", "run.cuda_graphs: "), 2) << "once a start";
  EXPECT_EQ(count("graphs", "are in 3 graphs, the others launched one by one"), 2);
}

// The steps that are compared have no data of the run's own.
VerifyOptions against_the_cpu(const std::string& config, int64_t steps, const std::vector<std::string>& overrides) {
  VerifyOptions options;
  options.config = config;
  options.overrides = {"run.device=cuda",        "data.train=",     "data.validation=",
                       "train.evaluate_every=0", "data.tokenizer=", "model.vocab=31"};
  options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
  options.against = {"run.device=cpu"};
  options.steps = steps;
  return options;
}

// Its weights, and every activation and gradient on the way.
TEST_F(SimulatedGpuRun, VerifyComparesAGpuWithTheCpu) {
  VerifyOptions options = against_the_cpu(scratch_.path("config.toml"), 2, {});
  EXPECT_TRUE(run_verify(options, session()));
  options.inject = "h.0";
  EXPECT_FALSE(run_verify(options, session()));
}

TEST_F(SimulatedGpuRun, HeadSizesOfTheTensorCoresAreAsOnTheCpuAndTwiceTheSameBits) {
  std::vector heads{80, 128, 64, 96, 112};
  heads.resize(static_cast<size_t>(taken("SimulatedGpuRun.HeadSizesOfTheTensorCoresAreAsOnTheCpuAndTwiceTheSameBits")));
  for (const int head : heads)
    for (const char* dropout : {"0", "0.2"}) {
      SCOPED_TRACE(fmt::format("heads of {}, dropout {}", head, dropout));
      std::vector<std::string> wide{fmt::format("model.hidden={}", head),
                                    "model.heads=1",
                                    "model.layers=1",
                                    "model.context=16",
                                    "precision.compute=bf16",
                                    fmt::format("model.dropout={}", dropout)};
      EXPECT_TRUE(run_verify(against_the_cpu(scratch_.path("config.toml"), 1, wide), session()));
      wide.insert(wide.end(), {"train.steps=1", "train.evaluate_every=0"});
      std::vector<std::string> bits;
      for (const char* time : {"first", "second"}) {
        const std::string run = fmt::format("heads of {} with {}, {}", head, dropout, time);
        megalith::Run(config(run, "cuda", wide), session()).train();
        bits.push_back(read_file(scratch_.path(run) + "/checkpoints/step-00000001/rank-00000.h5"));
      }
      EXPECT_TRUE(bits[0] == bits[1]);
    }
}

// Trains; in these steps, counted from 1, the losses have a NaN.
void train_with_bad_steps(const Config& config, int64_t first, int64_t last) {
  megalith::Run run(config, session());
  Stream& s = run.trainer().stream();
  run.trainer().stage().observe(
      [&, shown = int64_t{0}](const std::string& name, int64_t first_row, Tensor rows) mutable {
        if (name != "loss" || first_row != 0) return;
        shown++;
        if (shown >= first && shown <= last)
          s.upload("spoil", {rows.flat(0, 1)}, [](std::span<const Tensor> host) { host[0].data<float>()[0] = NAN; });
      });
  run.train();
}

// The host knows of a bad step when the next one has been launched: what is decided is decided on the device.
TEST_F(SimulatedGpuRun, BadStepsAreSkipped) {
  const auto of = [&](const std::string& run, const std::string& device, const std::string& steps) {
    return config(run, device,
                  {"data.validation=", "train.evaluate_every=0", "checkpoint.every=0", "train.steps=" + steps});
  };
  for (const char* device : {"cpu", "cuda"}) train_with_bad_steps(of(device, device, "6"), 2, 3);
  const auto cpu = told("cpu"), gpu = told("cuda");
  ASSERT_EQ(cpu.size(), 6u);
  ASSERT_EQ(gpu.size(), 6u);
  for (size_t i = 0; i < 6; i++) {
    EXPECT_EQ(gpu[i].contains("skipped"), i == 1 || i == 2) << i;
    EXPECT_NEAR(gpu[i].at("grad_norm").get<double>(), cpu[i].at("grad_norm").get<double>(), 1e-3) << i;
    EXPECT_EQ(gpu[i].at("loss").is_null(), i == 1 || i == 2) << i;
  }

  // Three in a row, after which the fourth, a good one, has been launched as well.
  const std::string message = message_of([&] { train_with_bad_steps(of("ended", "cuda", "6"), 3, 5); });
  EXPECT_NE(message.find("steps 3 to 5 were skipped"), std::string::npos) << message;
  megalith::Run(of("before", "cuda", "2"), session()).train();
  const auto file = [&](const std::string& run) {
    return read_file(scratch_.path(run) + "/checkpoints/step-00000002/rank-00000.h5");
  };
  EXPECT_TRUE(file("ended") == file("before"));
}

// A run whose rate ruins it, on either; its bad step, replayed on either.
TEST_F(SimulatedGpuRun, ReplayNamesTheSameOp) {
  const auto ruined = [&](const std::string& device) {
    const Config c = config(device, device,
                            {"data.validation=", "train.evaluate_every=0", "checkpoint.every=1", "train.steps=20",
                             "optimizer.learning_rate=1e30", "train.max_bad_steps=1"});
    return message_of([&] { megalith::Run(c, session()).train(); });
  };
  for (const char* device : {"cpu", "cuda"}) {
    const std::string message = ruined(device);
    const size_t step = message.find("--step ");
    ASSERT_NE(step, std::string::npos) << message;
    ReplayOptions options{.run = scratch_.path(device), .step = std::stoll(message.substr(step + 7))};
    const Replayed own = replay(options, session());
    ASSERT_TRUE(own.first);
    EXPECT_EQ(own.recorded, "loss and norm are bit-identical to the run's");
    options.overrides = {std::string("run.device=") + (device == std::string("cpu") ? "cuda" : "cpu")};
    const Replayed other = replay(options, session());
    ASSERT_TRUE(other.first);
    EXPECT_EQ(other.first->op, own.first->op);
    EXPECT_EQ(other.first->part, own.first->part);
    EXPECT_EQ(other.first->values, own.first->values);
    // The step before the last update went well.
    options.step = own.from_step;
    EXPECT_FALSE(replay(options, session()).first);
  }
}

TEST_F(SimulatedGpuRun, AModelThatDoesNotFitIsRefusedWithThePlan) {
  const std::string message = message_of([&] {
    megalith::Run(config("large", "cuda", {"model.hidden=1024", "model.layers=8"}), session()).train();
  });
  for (const char* words : {"GiB free; use a smaller batch.microbatch_size", "optimizer", "workspace"})
    EXPECT_NE(message.find(words), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("large")));
}

TEST_F(SimulatedGpuRun, ProductsInEightBitsNeedAGpuThatHasThem) {
  const auto train = [&] {
    megalith::Run(config("fp8", "cuda",
                         {"model.hidden=64", "model.heads=4", "batch.sequence_length=16", "model.context=16",
                          "precision.compute=bf16", "precision.products=fp8", "train.steps=1"}),
                  session())
        .train();
  };
  if (device::properties().has_fp8())
    train();
  else
    EXPECT_NE(message_of(train).find("compute capability 8.9"), std::string::npos);
  EXPECT_EQ(std::filesystem::exists(scratch_.path("fp8/metrics.jsonl")), device::properties().has_fp8());
}

TEST_F(SimulatedGpuRun, InferenceGivesTheSameText) {
  megalith::Run(config("cpu", "cpu"), session()).train();
  std::string texts[2];
  double losses[2];
  for (World where : {World::cpu, World::cuda}) {
    const size_t i = where == World::cuda;
    Inference inference(scratch_.path("cpu"), "", {where == World::cpu ? "run.device=cpu" : "run.device=cuda"},
                        session());
    inference.generate(
        {"12 bott", "a"}, {.tokens = 4, .sampling = {.temperature = 0}},
        [&](size_t prompt, int64_t, std::string_view text) { texts[i] += fmt::format("{}{}", prompt, text); });
    losses[i] = inference.evaluate(scratch_.path("data/validation.bin"), 0, 5, [](double) {}).loss;
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NEAR(losses[0], losses[1], 1e-5 * losses[0]);
}

}  // namespace
}  // namespace megalith
