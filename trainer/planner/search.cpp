#include "trainer/planner/search.h"

#include <algorithm>
#include <exception>
#include <set>
#include <tuple>

#include "trainer/planner/verdict.h"

namespace megalith {

namespace {

using Strategy = ShardingStrategy;

constexpr int64_t most_tensor = 64, most_stages = 64, most_virtual = 4, most_microbatch = 64;

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> powers;
  for (int64_t x = 1; x <= most; x *= 2) powers.push_back(x);
  return powers;
}

// Of a layout's degrees: the ways to share states. Groups are all data-parallel ranks, or those of a node.
struct Sharing {
  Strategy strategy;
  int64_t degree;  // 0: all
};
std::vector<Sharing> sharings(int64_t data, int64_t in_node) {
  if (data == 1) return {{Strategy::no_shard, 0}};
  std::vector<Sharing> all;
  for (Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op, Strategy::shard_optimizer}) {
    all.push_back({strategy, 0});
    if (1 < in_node && in_node < data && data % in_node == 0) all.push_back({strategy, in_node});
  }
  all.push_back({Strategy::no_shard, 0});
  return all;
}

// Sizes worth a try of what a group runs at a time: powers of two, and the config's own.
std::vector<int64_t> microbatches(int64_t sequences, int64_t own) {
  std::set<int64_t> sizes;
  for (int64_t size : powers_of_two(std::min(sequences, most_microbatch)))
    if (sequences % size == 0) sizes.insert(size);
  if (own <= sequences && sequences % own == 0) sizes.insert(own);
  return {sizes.begin(), sizes.end()};
}

// Layouts that differ in the microbatch size alone, from the smallest: where one is too large, so are those after it.
using Family = std::vector<Config>;

std::vector<Family> families(const Config& asked, int64_t ranks, int64_t per_node) {
  std::vector<Family> all;
  const int64_t layers = asked.model.layers;
  for (int64_t tensor : powers_of_two(std::min({most_tensor, per_node, ranks})))
    for (int64_t stages : powers_of_two(std::min({most_stages, layers, ranks / tensor})))
      for (int64_t chunks : powers_of_two(stages == 1 ? 1 : std::min(most_virtual, layers / stages))) {
        if (asked.model.heads % tensor != 0 || ranks % (tensor * stages) != 0) continue;
        const int64_t data = ranks / (tensor * stages);
        if (asked.batch.global_batch_size % data != 0) continue;
        for (const Sharing& sharing : sharings(data, per_node / tensor))
          for (const char* recompute : {"none", "each"}) {
            Family family;
            for (int64_t size : microbatches(asked.batch.global_batch_size / data, asked.batch.microbatch_size)) {
              Config c = asked;
              c.parallel.tensor_parallel_degree = tensor;
              c.parallel.sequence_parallel = tensor > 1;
              c.parallel.pipeline_parallel_degree = stages;
              c.parallel.virtual_stages = chunks;
              c.parallel.pipeline_schedule = PipelineSchedule::one_f_one_b;
              c.parallel.active_microbatches = 0;
              c.parallel.layers_per_stage.clear();
              c.parallel.sharding_strategy = sharing.strategy;
              c.parallel.sharded_data_parallel_degree = sharing.degree;
              c.parallel.hierarchical_allgather = false;
              c.parallel.max_live_parameters = 0;
              c.parallel.replicate_below = 0;
              c.parallel.prescaled_batch = true;
              c.memory.activation_checkpointing = {recompute == std::string("each")
                                                       ? ActivationCheckpointing::Kind::each
                                                       : ActivationCheckpointing::Kind::none};
              c.batch.microbatch_size = size;
              if (is_valid(c)) family.push_back(std::move(c));
            }
            if (!family.empty()) all.push_back(std::move(family));
          }
      }
  return all;
}

}  // namespace

Search search(const Config& asked, const Hardware& hardware, int num_ranks) {
  Config base = asked;
  const int64_t per_node = std::min<int64_t>(num_ranks, hardware.device.per_node);
  base.parallel.ranks_per_node = per_node;
  base.parallel.placement = ParallelConfig{}.placement;
  const std::vector<Family> all = families(base, num_ranks, per_node);
  const auto most = static_cast<int64_t>((hardware.device.memory - hardware.device.reserved) * (1 << 30));

  Search found;
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < all.size(); i++) {
    try {
      for (const Config& config : all[i]) {
        const Rehearsed rehearsed = rehearse_stages(config, num_ranks, false);
        int64_t needed = 0;
        for (const MemorySizes& sizes : rehearsed.memory) needed = std::max(needed, device_bytes(config, sizes));
        const bool fits = needed <= most;
        Prediction prediction;
        if (fits) prediction = predict(config, hardware, rehearsed);
#pragma omp critical
        {
          found.tried++;
          if (fits)
            found.fitting.push_back({config, std::move(prediction), needed});
          else
            found.too_large++;
        }
        if (!fits) break;
      }
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  // In an order of its own, whatever thread came first.
  std::ranges::sort(found.fitting, {}, [](const Candidate& c) {
    const ParallelConfig& p = c.config.parallel;
    return std::tuple(c.prediction.seconds, p.tensor_parallel_degree, p.pipeline_parallel_degree, p.virtual_stages,
                      p.sharding_strategy, p.sharded_data_parallel_degree, c.config.batch.microbatch_size);
  });
  return found;
}

std::string report(const Search& search, const Hardware& hardware, size_t most) {
  std::string text = fmt::format(
      "{} layouts were tried; {} fit, {} and those with larger microbatches do not\n"
      "  {:>8} {:>9} {:>6} {:>6}  {:<46} what the time goes to beside GEMM and attention\n",
      search.tried, search.fitting.size(), search.too_large, "s/step", "tokens/s", "MFU", "GiB", "layout");
  for (size_t i = 0; i < std::min(most, search.fitting.size()); i++) {
    const Candidate& c = search.fitting[i];
    const ParallelConfig& p = c.config.parallel;
    std::string layout = fmt::format("tensor {} pipeline {}", p.tensor_parallel_degree, p.pipeline_parallel_degree);
    if (p.virtual_stages > 1) layout += fmt::format(" x {}", p.virtual_stages);
    layout += " " + to_string(p.sharding_strategy);
    if (p.sharded_data_parallel_degree > 0) layout += fmt::format(" {}", p.sharded_data_parallel_degree);
    layout +=
        fmt::format(", {} x {}", c.config.batch.microbatch_size, to_string(c.config.memory.activation_checkpointing));
    text += fmt::format("  {:>8.4g} {:>9.4g} {:>5.1f}% {:>6.1f}  {:<46}", c.prediction.seconds,
                        c.prediction.tokens_per_second, 100 * c.prediction.mfu,
                        static_cast<double>(c.device_bytes) / (1 << 30) + hardware.device.reserved, layout);
    const Accounts& accounts = c.prediction.line.accounts[c.prediction.slowest];
    for (size_t a = static_cast<size_t>(Account::elementwise); a < num_accounts; a++)
      if (accounts[a] > 0.01 * c.prediction.seconds)
        text += fmt::format(" {} {:.0f}%", name_of(static_cast<Account>(a)), 100 * accounts[a] / c.prediction.seconds);
    text += "\n";
  }
  if (search.fitting.empty())
    text += fmt::format("none fits {} with {:.4g} GiB each; take more nodes, or memory of another size\n",
                        hardware.device.name, hardware.device.memory - hardware.device.reserved);
  return text;
}

}  // namespace megalith
