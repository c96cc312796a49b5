// One rank's training step on random tokens: tokens/s, and where the time goes, op by op. Each op's rate comes from the
// cost stated where it is launched.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "trainer/runtime/machine.h"
#include "trainer/train/rehearsal.h"

using namespace megalith;

int main(int argc, char** argv) {
  Config config;
  config.model = {.layers = 12, .hidden = 768, .heads = 12, .vocab = 50257, .context = 1024, .dropout = 0};
  config.batch = {.sequence_length = 256, .global_batch_size = 4, .microbatch_size = 4};
  std::string compute = "fp32";
  int steps = 5;
  bool table = false;
  CLI::App cli("Times training steps of one rank on random tokens.");
  cli.add_option("--layers", config.model.layers);
  cli.add_option("--hidden", config.model.hidden);
  cli.add_option("--heads", config.model.heads);
  cli.add_option("--vocab", config.model.vocab);
  cli.add_option("--sequence", config.batch.sequence_length);
  cli.add_option("--batch", config.batch.microbatch_size);
  cli.add_option("--compute", compute)->check(CLI::IsMember({"fp32", "bf16"}));
  cli.add_option("--steps", steps)->check(CLI::PositiveNumber);
  cli.add_flag("--table", table, "also print the ops");
  CLI11_PARSE(cli, argc, argv);
  config.batch.global_batch_size = config.batch.microbatch_size;
  config.model.context = config.batch.sequence_length;
  config.precision.compute = compute == "fp32" ? ComputeType::fp32 : ComputeType::bf16;

  use_threads(1);
  const Plan plan = make_plan(config, 1, 0);
  Runtime runtime(World::cpu, rehearse(config, plan).memory, Mesh::dry(plan.mesh, 0));
  Trainer trainer(config, plan, runtime);
  trainer.initialize();
  std::mt19937 random(1);
  const Feed feed = [&](Interval, Tensor tokens, Tensor targets) {
    for (Tensor t : {tokens, targets})
      for (int64_t i = 0; i < t.numel(); i++)
        t.data<int32_t>()[i] = static_cast<int32_t>(random() % static_cast<uint32_t>(config.model.vocab));
  };

  StepScalars scalars;
  trainer.step(0, 0, feed, false, &scalars);  // warms up
  runtime.stream.clear_log();
  std::vector<double> seconds;
  for (int i = 1; i <= steps; i++) {
    const auto start = std::chrono::steady_clock::now();
    trainer.step(i, 0, feed, false, &scalars);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const auto tokens = static_cast<double>(plan.rows());
  std::printf("%.6f seconds a step, %.1f tokens/s, %.1f model GFLOP/s\n", median, tokens / median,
              tokens * model_flops_per_token(config.model, config.batch.sequence_length, true) / median / 1e9);
  if (!table) return 0;
  std::printf("%-32s %9s %10s %7s %9s %9s\n", "op", "launches", "ms a step", "share", "GFLOP/s", "GB/s");
  double all = 0;
  for (const OpRecord& op : runtime.stream.log()) all += op.seconds;
  auto ops = runtime.stream.log();
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  for (const OpRecord& op : ops)
    std::printf("%-32s %9ld %10.3f %6.1f%% %9.1f %9.1f\n", op.name, static_cast<long>(op.launches / steps),
                1e3 * op.seconds / steps, 100 * op.seconds / all, op.flops / op.seconds / 1e9,
                op.bytes / op.seconds / 1e9);
}
