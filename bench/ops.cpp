// Counts a training step op by op without running it: launches, operations and bytes of one rank of a config, as
// `megalith plan` does. A change's saving is the difference of two tables.
//
//   bench_ops CONFIG [SECTION.KEY=VALUE...] [--ranks N] [--rank R] [--products]
//
// --products lists the shapes of its matrix products, which bench_kernels --tune times.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "kernels/system/counted.h"
#include "trainer/step/rehearsal.h"

using namespace megalith;

int main(int argc, char** argv) {
  CLI::App cli("Counts the ops of a training step of one rank.");
  std::string path;
  std::vector<std::string> overrides;
  int ranks = 1, rank = 0;
  cli.add_option("config", path)->required();
  cli.add_option("overrides", overrides);
  cli.add_option("--ranks", ranks)->check(CLI::PositiveNumber)->capture_default_str();
  cli.add_option("--rank", rank)->check(CLI::NonNegativeNumber)->capture_default_str();
  bool products = false;
  cli.add_flag("--products", products, "and the shapes of its matrix products");
  CLI11_PARSE(cli, argc, argv);
  try {
    const Config config = load_config(path, overrides);
    CHECK(rank < ranks, "--rank {} of --ranks {}: they count from 0", rank, ranks);
    const Plan plan = make_plan(config, ranks, rank);
    const Rehearsal step = rehearse(config, plan);
    std::vector<OpRecord> ops = step.ops;
    std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    OpRecord all{"all"};
    const auto line = [](const OpRecord& op) {
      fmt::print("{:<32} {:>9} {:>12.3f} {:>12.3f}\n", op.name, op.launches, op.flops / 1e12, op.bytes / 1e9);
    };
    fmt::print("{:<32} {:>9} {:>12} {:>12}\n", "op", "launches", "TFLOP", "GB");
    for (const OpRecord& op : ops) {
      line(op);
      all.launches += op.launches;
      all.flops += op.flops;
      all.bytes += op.bytes;
    }
    line(all);
    if (step.graphs.graphs > 0)
      fmt::print("{} of the launches in {}; {} launches a step with the others\n", step.graphs.ops,
                 counted(step.graphs.graphs, "graph"), all.launches - step.graphs.ops + step.graphs.graphs);
    fmt::print("{} microbatches of {} rows; logits of {} at a time; {:.3f} GiB of the device\n",
               plan.batch.num_microbatches(), plan.rows(), plan.pass.head_rows,
               static_cast<double>(step.memory.total(MemoryPlace::device)) / (1 << 30));
    if (products) fmt::print("{:>8} {:>8} {:>8} {:>9} {:>9}  {}\n", "M", "N", "K", "launches", "alignment", "is");
    for (const auto& [s, count] : step.gemms) {
      if (!products) break;
      std::string is = fmt::format("{} to {}", name_of(s.input), name_of(s.output));
      for (const auto& [flag, what] : {std::pair{s.a_transposed, "A^T"},
                                       {s.b_transposed, "B^T"},
                                       {s.accumulate, "added"},
                                       {s.bias, "bias"},
                                       {s.gelu, "GELU"},
                                       {s.bias_gradient, "bias gradient"}})
        if (flag) is += fmt::format(", {}", what);
      fmt::print("{:8} {:8} {:8} {:9} {:9}  {}\n", s.M, s.N, s.K, count, s.alignment, is);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_ops: {}\n", error.what());
    return 1;
  }
}
