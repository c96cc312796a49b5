// Measures one rank's training step on random tokens, on the CPU or a GPU: tokens/s, the distance from the machine's
// limits, and the time of each op. Costs are those stated at launch; the step's floor is the sum over its ops of the
// larger of operations over the rate of limits.h and bytes over that of a large copy.
//
// With --on-request it gets ready, prints one line of JSON, and then runs a round of steps and prints another for each
// line of input, so that two programs can be measured in turn.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "bench/limits.h"
#include "kernels/system/json.h"
#include "trainer/job/device_choice.h"
#include "trainer/job/memory_check.h"
#include "trainer/machine/machine.h"
#include "trainer/step/rehearsal.h"

using namespace megalith;
using nlohmann::ordered_json;

namespace {

bench::Limits measure_limits(World world) {
  bench::Desk desk(world, int64_t{world == World::cuda ? 6 : 3} << 30);
  return bench::Limits(desk);
}

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab) {
  std::mt19937 random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  return tokens;
}

class Steps {
 public:
  Steps(const Config& config, World world)
      : config_(config),
        world_(world),
        limits_(measure_limits(world)),
        plan_(make_plan(config_, 1, 0)),
        memory_(checked(rehearse(config_, plan_).memory)),
        runtime_(world, memory_, Mesh::dry(plan_.mesh, 0)),
        trainer_(config_, plan_, runtime_) {
    trainer_.initialize();
    for (int i = 0; i < 3; i++) one();  // GEMM libraries choose, memory is touched
    runtime_.stream.clear_log();
    one();
    of_step_ = runtime_.stream.log();
  }

  double one() {
    const auto start = std::chrono::steady_clock::now();
    trainer_.step(step_, 0, feed_, {}, &scalars_);
    runtime_.stream.synchronize();
    step_++;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double median_of(int steps) {
    std::vector<double> seconds;
    for (int i = 0; i < steps; i++) seconds.push_back(one());
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }

  double tokens() const { return static_cast<double>(config_.batch.global_batch_size * config_.batch.sequence_length); }
  double model_flops() const {
    return tokens() * model_flops_per_token(config_.model, config_.batch.sequence_length, true);
  }

  // The facts needed to judge a round.
  ordered_json facts() const {
    Cost all;
    double floor = 0, floor_operations = 0;
    for (const OpRecord& op : of_step_) {
      const Cost cost{op.flops, op.bytes};
      const double operations = limits_.floor_operations(cost, op.name, dtype());
      all.flops += cost.flops;
      all.bytes += cost.bytes;
      floor_operations += operations;
      floor += std::max(operations, limits_.floor_bytes(cost));
    }
    ordered_json facts{{"device", parse_json(bench::describe(world_))},
                       {"tokens", tokens()},
                       {"model_flops", model_flops()},
                       {"flops", all.flops},
                       {"bytes", all.bytes},
                       {"floor_operations", floor_operations},
                       {"floor_bytes", limits_.floor_bytes(all)},
                       {"floor", floor},
                       {"memory_planned", memory_.total(MemoryPlace::device)}};
    if (world_ != World::cuda) return facts;
    const device::Properties gpu = device::properties();
    facts["memory_in_use"] = gpu.memory - gpu.free;
    if (const double peak = peak_flops(gpu.name); peak > 0) facts["peak_flops"] = peak;
    return facts;
  }

  void print_table(int steps) {
    Stream& s = runtime_.stream;
    s.time_ops();
    s.clear_log();
    median_of(steps);
    auto ops = s.log();
    std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    double all = 0;
    for (const OpRecord& op : ops) all += op.seconds;
    fmt::print("{:<32} {:>9} {:>10} {:>7} {:>10} {:>9} {:>9}\n", "op", "launches", "ms a step", "share", "GFLOP/s",
               "GB/s", "of limit");
    for (const OpRecord& op : ops) {
      const Cost cost{op.flops, op.bytes};
      const double floor = std::max(limits_.floor_operations(cost, op.name, dtype()), limits_.floor_bytes(cost));
      fmt::print("{:<32} {:>9} {:>10.3f} {:>6.1f}% {:>10.1f} {:>9.1f} {:>9.2f}\n", op.name, op.launches / steps,
                 1e3 * op.seconds / steps, 100 * op.seconds / all, op.flops / op.seconds / 1e9,
                 op.bytes / op.seconds / 1e9, floor / op.seconds);
    }
  }

 private:
  DType dtype() const { return plan_.compute; }
  const MemorySizes& checked(const MemorySizes& sizes) const {
    if (world_ == World::cuda) check_gpu_memory(sizes, 1);
    return sizes;
  }

  const Config& config_;
  World world_;
  bench::Limits limits_;
  Plan plan_;
  MemorySizes memory_;
  Runtime runtime_;
  Trainer trainer_;
  std::vector<OpRecord> of_step_;
  // Drawn beforehand, as by a loader.
  std::vector<int32_t> random_ = random_tokens(2 * plan_.rows(), config_.model.vocab);
  Feed feed_ = [this](Interval, Tensor tokens, Tensor targets) {
    std::copy_n(random_.begin(), tokens.numel(), tokens.data<int32_t>());
    std::copy_n(random_.end() - targets.numel(), targets.numel(), targets.data<int32_t>());
  };
  StepScalars scalars_;
  int64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  // GPT-2 124M. Nothing is saved, so that no host memory need hold a copy for checkpoints.
  std::vector<std::string> options{"model.vocab=50257",
                                   "batch.sequence_length=256",
                                   "batch.microbatch_size=4",
                                   "batch.global_batch_size=4",
                                   "precision.compute=fp32",
                                   "run.device=cpu",
                                   "checkpoint.asynchronous=false"};
  std::vector<std::string> given;
  int steps = 5;
  bool table = false, on_request = false;
  CLI::App cli(
      "Times training steps of one rank on random tokens. Default: GPT-2 124M in fp32 on the CPU, 4 x 256 tokens.");
  cli.add_option("options", given, "of a run (configs/OPTIONS.md), as in model.layers=4 run.device=cuda");
  cli.add_option("--steps", steps, "in a round")->check(CLI::PositiveNumber)->capture_default_str();
  cli.add_flag("--table", table, "also print the ops, launched one by one");
  cli.add_flag("--on-request", on_request, "a round for each line of standard input");
  CLI11_PARSE(cli, argc, argv);

  try {
    options.insert(options.end(), given.begin(), given.end());
    const Config config = parse_config("", "bench_step", options);
    use_threads(1);
    const World world = config.run.device == Device::cuda ? World::cuda : World::cpu;
    if (world == World::cuda) bench::select_gpu();
    Steps run(config, world);
    if (on_request) {
      fmt::print("{}\n", json_text(run.facts()));
      std::fflush(stdout);
      for (std::string line; std::getline(std::cin, line);) {
        fmt::print("{}\n", json_text(ordered_json{{"seconds", run.median_of(steps)}}));
        std::fflush(stdout);
      }
      return 0;
    }
    const double seconds = run.median_of(steps);
    const ordered_json facts = run.facts();
    fmt::print("{:.6f} seconds a step, {:.1f} tokens/s, {:.1f} model GFLOP/s, {:.2f} of its floor\n", seconds,
               run.tokens() / seconds, run.model_flops() / seconds / 1e9, facts["floor"].get<double>() / seconds);
    if (facts.contains("peak_flops"))
      fmt::print("MFU {:.1f} %, {:.2f} GiB of the GPU's memory in use\n",
                 100 * run.model_flops() / seconds / facts["peak_flops"].get<double>(),
                 facts["memory_in_use"].get<double>() / (1 << 30));
    if (table) run.print_table(steps);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_step: {}\n", error.what());
    return 1;
  }
}
