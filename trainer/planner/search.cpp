#include "trainer/planner/search.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>

#include "kernels/system/counted.h"
#include "trainer/layout/layout.h"
#include "trainer/layout/plan.h"
#include "trainer/planner/in_parallel.h"
#include "trainer/planner/readable.h"
#include "trainer/planner/tensor_pieces.h"
#include "trainer/planner/verdict.h"

namespace megalith {

namespace {

using Strategy = ShardingStrategy;

constexpr int64_t most_tensor = 64, most_stages = 32, most_virtual = 4, most_microbatch = 64;

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> powers;
  for (int64_t x = 1; x <= most; x *= 2) powers.push_back(x);
  return powers;
}

struct Sharing {
  Strategy strategy;
  int64_t degree;  // 0: all
};
// Shard groups are all data-parallel ranks, or those of a node.
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

// Returns the microbatch sizes to try: powers of two, and the config's own.
std::vector<int64_t> microbatches(int64_t sequences, int64_t own) {
  std::set<int64_t> sizes;
  for (int64_t size : powers_of_two(std::min(sequences, most_microbatch)))
    if (sequences % size == 0) sizes.insert(size);
  if (own <= sequences && sequences % own == 0) sizes.insert(own);
  return {sizes.begin(), sizes.end()};
}

// The layouts of a family differ only in the microbatch size, ascending: once one is too large, so are the later ones.
using Family = std::vector<Config>;

std::vector<Family> families(const Config& asked, const Hardware& hardware, int64_t ranks, int64_t per_node) {
  std::vector<Family> all;
  const int64_t layers = asked.model.layers, batch = asked.batch.global_batch_size;
  for (int64_t stages : powers_of_two(std::min({most_stages, layers, ranks})))
    for (int64_t tensor : powers_of_two(std::min({most_tensor, per_node, ranks / stages})))
      for (int64_t chunks : powers_of_two(stages == 1 ? 1 : std::min(most_virtual, layers / stages))) {
        const int64_t data = ranks / (tensor * stages);
        if (asked.model.heads % tensor != 0 || ranks % (tensor * stages) != 0 || batch % data != 0) continue;
        for (const Sharing& sharing : sharings(data, per_node / tensor)) {
          Family family;
          for (int64_t size : microbatches(batch / data, asked.batch.microbatch_size)) {
            Config c = asked;
            c.parallel = {.tensor_parallel_degree = tensor,
                          .sequence_parallel = tensor > 1,
                          .pipeline_parallel_degree = stages,
                          .virtual_stages = chunks,
                          .layers_per_stage = {},
                          .sharding_strategy = sharing.strategy,
                          .sharded_data_parallel_degree = sharing.degree,
                          .ranks_per_node = per_node};
            c.batch.microbatch_size = size;
            if (!is_valid(c)) continue;
            c.parallel.tensor_pieces = best_tensor_pieces(c, hardware, static_cast<int>(ranks));
            family.push_back(std::move(c));
          }
          if (!family.empty()) all.push_back(std::move(family));
        }
      }
  return all;
}

// Returns a lower bound in seconds: GEMMs and attention at the full GEMM rate, including recomputed ones (all of a
// layer but the last), plus the pipeline's bubble, which halves of the backward pass reduce to a third.
double least_time(const Config& c, const Hardware& hardware, int num_ranks) {
  const ModelConfig& m = c.model;
  const double tokens = static_cast<double>(c.batch.global_batch_size * c.batch.sequence_length);
  const double h = static_cast<double>(m.hidden), products = m.activation == Activation::swiglu ? 2 : 1;
  const auto attention = static_cast<double>(m.qkv_width() + m.heads * m.size_of_head());
  const double recomputed =
      static_cast<double>(m.layers) * h * (attention + products * static_cast<double>(m.features()));
  const bool again = c.memory.activation_checkpointing.kind == ActivationCheckpointing::Kind::each;
  const double flops =
      tokens * (model_flops_per_token(m, c.batch.sequence_length, true) + (again ? 2 * recomputed : 0));
  const Processor processor = processor_of(hardware, c.precision.compute, static_cast<int>(c.parallel.ranks_per_node));
  const BatchPlan batch = batch_plan(c, mesh_shape(c, num_ranks), 0);
  const double bubble = static_cast<double>(c.parallel.pipeline_parallel_degree - 1) /
                        static_cast<double>(batch.num_microbatches() * c.parallel.virtual_stages) /
                        (has_halves(c.parallel.pipeline_schedule) ? 3 : 1);
  return flops / (processor.peak * hardware.calibrated.gemm * num_ranks) * (1 + bubble);
}

bool faster(const Candidate& a, const Candidate& b) {
  const auto order = [](const Candidate& c) {  // total, so that it does not depend on the threads
    const ParallelConfig& p = c.config.parallel;
    return std::tuple(c.prediction.seconds, p.tensor_parallel_degree, p.sequence_parallel, p.pipeline_parallel_degree,
                      p.virtual_stages, p.pipeline_schedule, p.active_microbatches, p.sharding_strategy,
                      p.sharded_data_parallel_degree, c.config.batch.microbatch_size,
                      c.config.memory.activation_checkpointing.kind);
  };
  return order(a) < order(b);
}

// Threads may share it.
class LayoutSearch {
 public:
  LayoutSearch(const Config& asked, const Hardware& hardware, int num_ranks, size_t most)
      : asked_(asked), hardware_(hardware), num_ranks_(num_ranks), most_(most) {}

  void try_families(const std::vector<Family>& all, const SearchWatch& watch) {
    size_t searched = 0;
    in_parallel(all.size(), [&](size_t i) {
      {
        const std::scoped_lock lock(mutex_);
        if (found_.ended_early) return;
      }
      try_family(all[i]);
      const std::scoped_lock lock(mutex_);
      searched++;
      if (watch && !watch(static_cast<double>(searched) / static_cast<double>(all.size()), found_))
        found_.ended_early = searched < all.size();
    });
  }

  void try_family(const Family& family) {
    using enum ActivationCheckpointing::Kind;
    for (Config config : family) {
      Fits fits = Fits::no;
      for (const auto kind : {none, selective, each}) {  // each slower than the previous one
        config.memory.activation_checkpointing = {kind};
        config.memory.offload_activations = asked_.memory.offload_activations && kind == each;
        if (fits != Fits::yes && is_valid(config)) fits = std::max(fits, try_schedules(config));
      }
      if (fits != Fits::no) continue;
      const std::scoped_lock lock(mutex_);
      found_.too_large++;
      return;
    }
  }

  // Tensor-parallel groups may be faster without sequence parallelism, if there is enough memory: the best layouts are
  // also tried without it.
  void try_best_without_sequence_parallelism() {
    const std::vector<Candidate> best = found_.best;
    in_parallel(best.size(), [&](size_t i) {
      Config config = best[i].config;
      if (!config.parallel.sequence_parallel) return;
      config.parallel.sequence_parallel = false;
      const ParallelConfig& p = config.parallel;
      if (is_valid(config)) try_schedule(config, p.pipeline_schedule, p.active_microbatches, 0);
    });
  }

  // Predicts all microbatches of the best layouts' steps, as a plan does; before that most are extrapolated.
  void predict_best_whole() {
    std::vector<Candidate>& best = found_.best;
    in_parallel(best.size(), [&](size_t i) {
      best[i].prediction =
          predict(best[i].config, hardware_, dry_run_stages(best[i].config, hardware_, num_ranks_, true));
    });
    std::ranges::sort(best, faster);
  }

  Search& found() { return found_; }

 private:
  enum class Fits { no, in_half, yes };
  // A layout that is too slow to be tried counts as one that fits. `busy`: seconds that its busiest stage works, which
  // no order of its actions can reduce; 0 if unknown.
  struct Tried {
    bool fits = false;
    double busy = 0;
  };

  // Tries all schedules. zb_h1 does everything that 1f1b does except waiting. Those of a V have other stages, and
  // v_half may fit where the others, which need 1f1b's memory, do not.
  Fits try_schedules(const Config& config) {
    const Tried plain = try_one(config, 0);
    if (config.parallel.pipeline_parallel_degree == 1) return plain.fits ? Fits::yes : Fits::no;
    if (plain.fits) try_schedule(config, PipelineSchedule::zb_h1, 0, plain.busy);
    if (config.parallel.virtual_stages != 2) return plain.fits ? Fits::yes : Fits::no;
    if (plain.fits) try_v(config);
    const Tried half = try_schedule(config, PipelineSchedule::v_half, 0, 0);
    return plain.fits ? Fits::yes : half.fits ? Fits::in_half : Fits::no;
  }

  // With more memory a V waits less.
  void try_v(const Config& config) {
    const int64_t stages = config.parallel.pipeline_parallel_degree,
                  microbatches = batch_plan(config, mesh_shape(config, num_ranks_), 0).num_microbatches();
    const Tried v = try_schedule(config, PipelineSchedule::zb_v, 0, 0);
    bool fits = v.fits;
    for (const int64_t active : {stages + stages / 2, 2 * stages})
      if (fits && active <= microbatches) fits = try_schedule(config, PipelineSchedule::zb_v, active, v.busy).fits;
  }

  Tried try_schedule(Config config, PipelineSchedule kind, int64_t active_microbatches, double least) {
    config.parallel.pipeline_schedule = kind;
    config.parallel.active_microbatches = active_microbatches;
    config.parallel.tensor_pieces = best_tensor_pieces(config, hardware_, num_ranks_);
    return try_one(config, least);
  }

  // The config takes at least `least` seconds.
  Tried try_one(const Config& config, double least) {
    least = std::max(least, least_time(config, hardware_, num_ranks_));
    bool too_slow = false;
    {
      const std::scoped_lock lock(mutex_);
      too_slow = found_.best.size() == most_ && least > found_.best.back().prediction.seconds;
      (too_slow ? found_.too_slow : found_.tried)++;
    }
    if (too_slow) return {.fits = true};
    const StageDryRuns dry_runs = dry_run_stages(config, hardware_, num_ranks_, false);
    int64_t needed = 0, on_host = 0;
    for (const MemorySizes& sizes : dry_runs.memory) {
      needed = std::max(needed, device_bytes(config, hardware_, sizes));
      on_host = std::max(on_host, config.parallel.ranks_per_node * sizes.total(MemoryPlace::host));
    }
    const auto room = static_cast<int64_t>((hardware_.device.memory - hardware_.device.reserved) * (1 << 30));
    if (needed > room) return {};
    if (gib(on_host) > hardware_.host.memory) {
      const std::scoped_lock lock(mutex_);
      found_.least_on_host = found_.least_on_host == 0 ? on_host : std::min(found_.least_on_host, on_host);
      return {};
    }
    Candidate candidate{config, predict(config, hardware_, dry_runs), needed};
    const Prediction& p = candidate.prediction;
    const Tried tried{.fits = true, .busy = p.seconds - at(p.line.breakdowns[p.slowest], Account::bubble)};
    const std::scoped_lock lock(mutex_);
    keep(std::move(candidate));
    return tried;
  }

  void keep(Candidate candidate) {
    found_.best.insert(std::ranges::upper_bound(found_.best, candidate, faster), std::move(candidate));
    if (found_.best.size() > most_) found_.best.pop_back();
  }

  const Config& asked_;
  const Hardware& hardware_;
  const int num_ranks_;
  const size_t most_;
  std::mutex mutex_;  // guards found_
  Search found_;
};

}  // namespace

Search search(const Config& asked, const Hardware& hardware, int num_ranks, size_t most, const SearchWatch& watch) {
  CHECK(num_ranks >= 1 && most >= 1, "{} ranks, the best {} layouts; at least one of each", num_ranks, most);
  const std::vector<Family> all = families(asked, hardware, num_ranks, ranks_on_a_node(asked, hardware, num_ranks));
  LayoutSearch search(asked, hardware, num_ranks, most);
  search.try_families(all, watch);
  if (search.found().ended_early) return std::move(search.found());
  search.try_best_without_sequence_parallelism();
  search.predict_best_whole();
  return std::move(search.found());
}

std::string report(const Search& search, const Hardware& hardware) {
  std::string text = fmt::format("tried: {}\n{} do not fit, nor would larger microbatches; {} more cannot be faster\n",
                                 counted(search.tried, "layout"), search.too_large, search.too_slow);
  if (search.ended_early) text += "ended early: other layouts may be faster, and times are less exact\n";
  if (!search.best.empty())
    text += fmt::format(
        "{:>9} {:>10} {:>6} {:>6}  layout (tensor-parallel products\n{:36}in this many pieces); below microbatches "
        "and\n{:36}time apart from GEMM and attention\n",
        "s/step", "tokens/s", "MFU", "GiB", "", "");
  constexpr size_t width = 80, column = 36;
  for (const Candidate& c : search.best) {
    const ParallelConfig& p = c.config.parallel;
    const std::string pieces = p.tensor_pieces > 0 ? fmt::format(" in {}", p.tensor_pieces) : "";
    std::string layout =
        fmt::format("tensor {}{} pipeline {}", p.tensor_parallel_degree, pieces, p.pipeline_parallel_degree);
    if (p.virtual_stages > 1) layout += fmt::format(" x {}", p.virtual_stages);
    layout += " " + to_string(p.sharding_strategy);
    if (p.sharded_data_parallel_degree > 0) layout += fmt::format(" {}", p.sharded_data_parallel_degree);
    text += fmt::format("{:>9.4g} {:>10} {:>5.1f}% {:>6.1f}  {}\n", c.prediction.seconds,
                        readable(c.prediction.tokens_per_second), 100 * c.prediction.mfu,
                        gib(c.device_bytes) + hardware.device.reserved, layout);
    std::string line;
    const auto add = [&](const std::string& word) {
      if (!line.empty() && column + line.size() + 3 + word.size() > width) {
        text += fmt::format("{:{}}{},\n", "", column, line);
        line.clear();
      }
      line += (line.empty() ? "" : ", ") + word;
    };
    add(fmt::format("{} x {}", c.config.batch.microbatch_size, to_string(c.config.memory.activation_checkpointing)));
    if (p.tensor_parallel_degree > 1 && !p.sequence_parallel) add("no sequence parallelism");
    if (p.pipeline_schedule != PipelineSchedule::one_f_one_b) add(to_string(p.pipeline_schedule));
    if (p.active_microbatches > 0) add(fmt::format("{} active", p.active_microbatches));
    const Accounts& breakdown = c.prediction.line.breakdowns[c.prediction.slowest];
    for (size_t a = static_cast<size_t>(Account::elementwise); a < num_accounts; a++)
      if (breakdown[a] > 0.01 * c.prediction.seconds)
        add(fmt::format("{} {:.0f} %", name_of(static_cast<Account>(a)), 100 * breakdown[a] / c.prediction.seconds));
    text += fmt::format("{:{}}{}\n", "", column, line);
  }
  if (search.best.empty() && search.tried == 0)
    text += "no layout is possible: change batch.global_batch_size, model.heads or the number of ranks\n";
  else if (search.best.empty() && search.least_on_host > 0)
    text += fmt::format(
        "none fits a host of {:.4g} GiB: of the layouts that fit {}, the smallest needs {:.4g} GiB on the host of a "
        "node; use more nodes, or less host memory: memory.offload_optimizer, memory.offload_parameters, "
        "memory.offload_activations or checkpoint.asynchronous = false\n",
        hardware.host.memory, hardware.device.name, gib(search.least_on_host));
  else if (search.best.empty())
    text += fmt::format("none fits {} with {:.4g} GiB each; use more nodes, or devices with more memory\n",
                        hardware.device.name, hardware.device.memory - hardware.device.reserved);
  return text;
}

}  // namespace megalith
