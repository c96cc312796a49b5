#include "trainer/planner/prediction.h"

#include <algorithm>

#include "trainer/planner/readable.h"
#include "trainer/step/rehearsal.h"

namespace megalith {

namespace {

StageDryRuns::Step dry_run_step(const Config& config, const Hardware& hardware, int num_ranks,
                                std::vector<MemorySizes>& memory) {
  StageDryRuns::Step step;
  const MeshShape mesh = mesh_shape(config, num_ranks);
  const Pipeline pipeline = make_pipeline(config, mesh);
  memory.clear();
  for (int stage = 0; stage < mesh.pipeline; stage++) {
    int rank = 0;  // the first of the stage
    while (mesh.coordinate(rank, Axis::pipeline) != stage) rank++;
    Plan plan = make_plan(config, num_ranks, rank, pipeline);
    plan.recompute_outputs = hardware.stack.recomputes_outputs;
    plan.chip = chip_of(hardware, config.run.device);
    const Rehearsal rehearsal = rehearse(config, plan, TraceLevel::everything);
    step.stages.push_back(stage_trace(rank, rehearsal.trace, plan.pipeline.virtual_stages));
    step.microbatches = plan.batch.num_microbatches();
    memory.push_back(rehearsal.memory);
    const double ranks = static_cast<double>(num_ranks) / mesh.pipeline;
    for (const OpRecord& op : rehearsal.ops) step.hardware_flops += op.flops * ranks;
  }
  return step;
}

// Extrapolates linearly from the microbatches of the two short steps to all.
double extended(double shorter, double longer, const StageDryRuns& r) {
  const auto more = static_cast<double>(r.microbatches - r.step.microbatches);
  return longer + (longer - shorter) * more / static_cast<double>(r.step.microbatches - r.shorter.microbatches);
}

TimeLine extended(const TimeLine& shorter, TimeLine line, const StageDryRuns& r) {
  line.seconds = extended(shorter.seconds, line.seconds, r);
  for (size_t stage = 0; stage < line.breakdowns.size(); stage++)
    for (size_t a = 0; a < num_accounts; a++)
      line.breakdowns[stage][a] = extended(shorter.breakdowns[stage][a], line.breakdowns[stage][a], r);
  for (size_t stage = 0; stage < line.tensor_sums.size(); stage++)
    line.tensor_sums[stage] = extended(shorter.tensor_sums[stage], line.tensor_sums[stage], r);
  for (size_t stage = 0; stage < line.copies.size(); stage++) {
    TimeLine::Copies& copies = line.copies[stage];
    copies.all = extended(shorter.copies[stage].all, copies.all, r);
    copies.hidden = extended(shorter.copies[stage].hidden, copies.hidden, r);
  }
  return line;
}

// Describes how long stages wait for others: each of them or, if there are many, the first, the median and the one that
// waits longest.
std::string idle_line(const Prediction& p) {
  constexpr size_t few = 8;
  std::vector<std::pair<double, size_t>> idle;
  for (const Accounts& stage : p.line.breakdowns) idle.emplace_back(at(stage, Account::bubble), idle.size());
  const auto words = [&](const std::pair<double, size_t>& stage) {
    return fmt::format("{} {} ms ({:.1f} %)", stage.second, readable(1e3 * stage.first), 100 * stage.first / p.seconds);
  };
  std::string text = "  stages wait for others: ";
  if (idle.size() <= few) {
    for (const auto& stage : idle) text += (stage.second == 0 ? "" : ", ") + words(stage);
  } else {
    text += words(idle.front());
    std::ranges::sort(idle);
    text += "; median " + words(idle[idle.size() / 2]) + "; longest " + words(idle.back());
  }
  return text + "\n  plan --trace FILE shows the actions over time: lane `schedule`, in ui.perfetto.dev\n";
}

}  // namespace

int64_t ranks_on_a_node(const Config& config, const Hardware& hardware, int num_ranks) {
  const int64_t ranks = num_ranks, nodes = config.hardware.nodes;
  if (hardware.device.kind == DeviceKind::cpu) return (ranks + nodes - 1) / nodes;
  return std::min(ranks, hardware.device.per_node);
}

Device device_on(const Hardware& hardware, Device wanted) {
  if (wanted != Device::automatic) return wanted;
  return hardware.device.kind == DeviceKind::cpu ? Device::cpu : Device::cuda;
}

cuda::Chip chip_of(const Hardware& hardware, Device device) {
  if (device_on(hardware, device) == Device::cpu) return {};
  return {.generation = static_cast<int>(hardware.device.generation)};
}

StageDryRuns dry_run_stages(const Config& config, const Hardware& hardware, int num_ranks, bool whole) {
  StageDryRuns r;
  r.mesh = mesh_shape(config, num_ranks);
  const BatchPlan batch = batch_plan(config, r.mesh, 0);
  r.microbatches = batch.num_microbatches();
  const ParallelConfig& parallel = config.parallel;
  // The pipeline fills and drains in `few` microbatches; the last round has as many as in the whole step. A V with more
  // memory than it needs has no period, and neither has gpipe without a bound on live microbatches.
  const int64_t period = parallel.pipeline_parallel_degree;
  const bool in_halves = has_halves(parallel.pipeline_schedule);
  const int64_t least = (in_halves ? 4 : parallel.virtual_stages > 1 ? 3 : 2) * period + parallel.active_microbatches;
  const int64_t few = least + std::max<int64_t>(0, r.microbatches - least) % period;
  const bool bounded = parallel.active_microbatches > 0;
  bool periodic = true;
  if (is_v_shaped(parallel.pipeline_schedule)) periodic = !bounded;
  if (parallel.pipeline_schedule == PipelineSchedule::gpipe) periodic = bounded || period == 1;
  if (whole || !periodic || r.microbatches <= few + period) {
    r.step = dry_run_step(config, hardware, num_ranks, r.memory);
    return r;
  }
  const auto of = [&](int64_t microbatches) {
    Config fewer = config;
    fewer.batch.global_batch_size = microbatches * batch.microbatch * batch.ranks;
    return dry_run_step(fewer, hardware, num_ranks, r.memory);
  };
  r.shorter = of(few);
  r.step = of(few + period);
  return r;
}

Prediction predict(const Config& config, const Hardware& hardware, const StageDryRuns& dry_runs, bool with_spans) {
  const MeshShape& mesh = dry_runs.mesh;
  const Processor processor = processor_of(hardware, config.precision.compute, mesh.ranks_per_node);
  CHECK(
      config.precision.products != ProductType::fp8 || processor.peak_fp8 > 0,
      "hardware.profile: {} has no products in 8 bits (device.fp8 is 0), which precision.products = \"fp8\" needs; set "
      "\"compute\" there, or choose a GPU with them, such as an H100",
      hardware.device.name);
  Prediction p;
  p.line = time_line(mesh, dry_runs.step.stages, hardware, processor, with_spans);
  double hardware_flops = dry_runs.step.hardware_flops;
  if (dry_runs.shorter.microbatches > 0) {
    p.line = extended(time_line(mesh, dry_runs.shorter.stages, hardware, processor), std::move(p.line), dry_runs);
    hardware_flops = extended(dry_runs.shorter.hardware_flops, hardware_flops, dry_runs);
  }

  // In a pipeline the first stage's microbatches follow one another, and each stage adds one.
  const auto microbatches = static_cast<double>(dry_runs.microbatches + mesh.pipeline - 1);
  const double elsewhere = 1e-3 * (hardware.calibrated.step + hardware.calibrated.microbatch * microbatches);
  for (Accounts& stage : p.line.breakdowns) at(stage, Account::elsewhere) += elsewhere;
  if (elsewhere > 0)
    for (std::vector<Span>& stage : p.line.spans)
      stage.push_back(
          {name_of(Account::elsewhere), -1, p.line.seconds, p.line.seconds + elsewhere, Account::elsewhere});
  p.line.seconds += elsewhere;
  p.seconds = p.line.seconds;
  const auto bubble = [](const Accounts& stage) { return at(stage, Account::bubble); };
  p.slowest = static_cast<size_t>(std::ranges::min_element(p.line.breakdowns, {}, bubble) - p.line.breakdowns.begin());

  const int64_t T = config.batch.sequence_length;
  p.tokens = static_cast<double>(config.batch.global_batch_size * T);
  p.tokens_per_second = p.tokens / p.seconds;
  const double peak = processor.peak * mesh.size();
  p.mfu = p.tokens_per_second * model_flops_per_token(config.model, T, true) / peak;
  p.mfu_full = p.tokens_per_second * model_flops_per_token(config.model, T, false) / peak;
  p.hfu = hardware_flops / p.seconds / peak;
  return p;
}

std::string report(const Prediction& p, const MeshShape& mesh, double tokens_of_run) {
  std::string text = fmt::format(
      "predicted: {} s a step, {} tokens/s, {} a rank\n"
      "  MFU {:.1f} % (causal), {:.1f} % (full), HFU {:.1f} %\n",
      readable(p.seconds), readable(p.tokens_per_second), readable(p.tokens_per_second / mesh.size()), 100 * p.mfu,
      100 * p.mfu_full, 100 * p.hfu);
  const double hours = tokens_of_run / p.tokens_per_second / 3600;
  text += fmt::format("  {} tokens: {} hours, {} hours of a rank\n", in_words(tokens_of_run), readable(hours),
                      readable(hours * mesh.size()));
  const Accounts& breakdown = p.line.breakdowns[p.slowest];
  text += mesh.pipeline > 1 ? fmt::format("  of stage {}, which waits least for others:\n", p.slowest) : "";
  for (size_t a = 0; a < num_accounts; a++)
    if (breakdown[a] > 0)
      text += fmt::format("  {:<26}{:>14} ms {:>6.1f} %\n", name_of(static_cast<Account>(a)),
                          readable(1e3 * breakdown[a]), 100 * breakdown[a] / p.seconds);
  if (const double sums = p.line.tensor_sums[p.slowest]; sums > 0)
    text += fmt::format("  tensor-parallel sums last {} ms, of which {:.0f} % overlap with work\n",
                        readable(1e3 * sums), 100 * std::max(0.0, 1 - at(breakdown, Account::tensor_sums) / sums));
  if (const TimeLine::Copies& copies = p.line.copies[p.slowest]; copies.all > 0)
    text += fmt::format("  {:.0f} copies to the host or back, of which {:.0f} overlap with work\n", copies.all,
                        copies.hidden);
  if (mesh.pipeline > 1) text += idle_line(p);
  return text;
}

std::vector<TraceProcess> trace_of(const Prediction& prediction) {
  std::vector<TraceProcess> stages;
  for (const std::vector<Span>& spans : prediction.line.spans)
    stages.push_back({fmt::format("predicted, stage {}", stages.size()), spans});
  return stages;
}

std::vector<TraceProcess> predicted_step(const Config& config, int num_ranks) {
  const Hardware hardware = load_hardware(config.hardware);
  return trace_of(predict(config, hardware, dry_run_stages(config, hardware, num_ranks, true), true));
}

}  // namespace megalith
