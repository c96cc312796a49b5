#include "trainer/planner/dry_run.h"

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/system/counted.h"
#include "kernels/system/long_work.h"
#include "trainer/planner/readable.h"
#include "trainer/planner/traffic.h"

namespace megalith {

namespace {

std::string memory_line(const std::string& name, int64_t bytes) {
  return fmt::format("  {:<14} {:>16} bytes {:>10.3f} GiB", name, bytes, gib(bytes));
}

std::string memory_lines(const MemorySizes& sizes, MemoryPlace place) {
  std::string text;
  for (MemoryClass c : classes_on(place)) text += memory_line(name_of(c), sizes.at(c, place)) + "\n";
  return text + memory_line("total", sizes.total(place)) + "\n";
}

int64_t bytes_of_attention_sums(const Plan& plan, const cuda::Chip& chip) {
  const PassShape& pass = plan.pass;
  const AttentionDims dims{.B = pass.B,
                           .T = pass.T,
                           .H = plan.model.heads / pass.parts,
                           .D = plan.model.size_of_head(),
                           .key_value_heads = std::max<int64_t>(1, plan.model.kv_heads() / pass.parts)};
  return attention_backward_scratch(chip, plan.compute, dims) * size_of(DType::f32);
}

auto fullest(const std::vector<MemorySizes>& all, MemoryPlace place) {
  return std::ranges::max_element(all, {}, [=](const MemorySizes& sizes) { return sizes.total(place); });
}

std::string memory_table(const Config& config, const DryRun& run, const Plan& plan) {
  const bool cpu = config.run.device == Device::cpu;
  const auto rank = fullest(run.memory, MemoryPlace::device);
  std::string text = fmt::format("memory of the fullest rank, {}, {}:\n",
                                 run.mesh.describe(static_cast<int>(rank - run.memory.begin())),
                                 cpu ? "in its node's memory" : "on its device") +
                     memory_lines(*rank, MemoryPlace::device);
  const int64_t logits = plan.pass.head_rows * plan.logit_columns * size_of(plan.compute);
  text += fmt::format("{} of logits on the stage with the head, {} at a time\n", memory_line("of the scratch", logits),
                      counted(plan.pass.head_rows, "row"));
  if (const int64_t sums = bytes_of_attention_sums(plan, run.chip); sums > 0)
    text += memory_line("of the scratch", sums) + " of sums of attention's backward pass\n";
  if (const int64_t cache = run.sample_caches[static_cast<size_t>(rank - run.memory.begin())]; cache > 0)
    text += memory_line("of the saved", cache) + " of cached keys and values of texts (train.sample_every)\n";
  if (!cpu)
    text += memory_line("on a GPU also", DeviceQueue::bytes) + " of workspace, and the memory of CUDA and NCCL\n";
  if (config.run.device != Device::cuda) {
    text += "  on a CPU the process takes in addition, about, with one thread:\n";
    for (const auto& [name, bytes] : run.process[static_cast<size_t>(rank - run.memory.begin())].parts())
      text += memory_line(name, bytes) + "\n";
  }
  std::vector<MemorySizes> nodes(static_cast<size_t>(run.mesh.node(run.mesh.size() - 1) + 1));
  for (int r = 0; r < run.mesh.size(); r++)
    nodes[static_cast<size_t>(run.mesh.node(r))] += run.memory[static_cast<size_t>(r)];
  if (const auto node = fullest(nodes, MemoryPlace::host); node->total(MemoryPlace::host) > 0)
    text += fmt::format("host memory of the fullest node, {}, for all of its ranks{}:\n", node - nodes.begin(),
                        cpu ? ", in addition" : "") +
            memory_lines(*node, MemoryPlace::host);
  return text;
}

// How much a checkpoint takes on disk, and how long its writing takes at a rate that the reader can scale.
std::string checkpoint_line(const Config& config, const DryRun& run) {
  constexpr double rate = 1e9;  // bytes a second
  int64_t all = 0;
  std::vector<int64_t> nodes(static_cast<size_t>(run.mesh.node(run.mesh.size() - 1) + 1));
  for (int r = 0; r < run.mesh.size(); r++) {
    all += run.saved[static_cast<size_t>(r)];
    nodes[static_cast<size_t>(run.mesh.node(r))] += run.saved[static_cast<size_t>(r)];
  }
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  const int64_t most = *std::ranges::max_element(nodes);
  return fmt::format(
      "checkpoint: {:.2f} GiB on disk in {}; {} writes {:.2f} GiB, {:.3g} s at 1 GB/s{}\n", gib(all),
      counted(run.mesh.size(), "file"), nodes.size() == 1 ? "the node" : "the fullest node", gib(most),
      static_cast<double>(most) / rate,
      saves_asynchronously(config.checkpoint) ? ", while the steps continue" : ", for which the steps wait");
}

std::string work_table(const Config& config, const DryRun& run) {
  double hardware = 0, bytes = 0;
  for (const auto& ops : run.ops)
    for (const OpRecord& op : ops) {
      hardware += op.flops;
      bytes += op.bytes;
    }
  const auto ranks = static_cast<double>(run.ops.size());
  const double tokens = static_cast<double>(config.batch.global_batch_size * config.batch.sequence_length);
  const auto model = [&](bool causal) {
    return tokens * model_flops_per_token(config.model, config.batch.sequence_length, causal);
  };
  return fmt::format(
      "FLOPs and traffic of one step: {:.0f} tokens\n  model FLOPs     {} (causal attention), {} (full attention)\n  "
      "hardware FLOPs  {} as executed, {} a rank\n  memory traffic  {} a rank, if every op read and wrote each "
      "argument once\n",
      tokens, with_prefix(model(true), "FLOP"), with_prefix(model(false), "FLOP"), with_prefix(hardware, "FLOP"),
      with_prefix(hardware / ranks, "FLOP"), with_prefix(bytes / ranks, "B"));
}

// Returns a line on what is not trained, and on the memory that this saves in each copy of the model: master weights,
// gradients and moments.
std::string frozen_line(const Config& config, const Plan& plan, const std::vector<UnitSpec>& spec) {
  const int64_t all = num_parameters(spec), trained = num_trained(spec);
  if (trained == all) return "";
  const int64_t compute = size_of(plan.compute), master = size_of(plan.master);
  const int64_t working = plan.compute == plan.master ? 0 : compute;
  const int64_t whole = master + working + size_of(DType::f32) + 2 * size_of(stored_in(config.precision.moments));
  return fmt::format(
      "trained: {} parameters, {:.2f} %; the other {} are frozen, in {}, without gradients and optimizer state: {} "
      "bytes each instead of {}, which saves {:.2f} GiB in each copy of the model\n",
      trained, 100.0 * static_cast<double>(trained) / static_cast<double>(all), all - trained, name_of(plan.compute),
      compute, whole, static_cast<double>((all - trained) * (whole - compute)) / (1 << 30));
}

}  // namespace

DryRun dry_run(const Config& config, int num_ranks, const cuda::Chip& chip) {
  CHECK(num_ranks >= 1, "--ranks {}: at least one rank", num_ranks);
  DryRun run;
  run.mesh = mesh_shape(config, num_ranks);
  run.chip = chip;
  const Pipeline pipeline = make_pipeline(config, run.mesh);
  LongWork work("rehearsing " + counted(num_ranks, "rank"), num_ranks);
  for (int rank = 0; rank < num_ranks; rank++) {
    work.advance(1);
    Plan plan = make_plan(config, num_ranks, rank, pipeline);
    plan.chip = chip;
    Rehearsal rehearsal = rehearse(config, plan);
    run.memory.push_back(rehearsal.memory);
    run.sample_caches.push_back(rehearsal.sample_cache);
    run.process.push_back(process_memory(run.mesh, rank, rehearsal.trace, rehearsal.saved, 1));
    run.saved.push_back(rehearsal.saved);
    run.ops.push_back(std::move(rehearsal.ops));
    run.traces.push_back(std::move(rehearsal.trace));
  }
  run.faults = match(run.mesh, run.traces);
  return run;
}

std::string report(const Config& config, const DryRun& run) {
  const auto spec = model_spec(config.model);
  const Plan plan = make_plan(config, run.mesh.size(), 0);
  const BatchPlan& batch = plan.batch;
  std::string text = fmt::format(
      "model: {} parameters, {}, {} wide, {}, vocabulary {}\n"
      "layout: {}: {}, {} sharded over {}{}, tensors split by {}; batch of {} of {}, {} of {}\n",
      num_parameters(spec), counted(config.model.layers, "layer"), config.model.hidden,
      counted(config.model.heads, "head"), config.model.vocab, counted(run.mesh.size(), "rank"),
      counted(run.mesh.pipeline, "pipeline stage"), counted(run.mesh.data, "replica"), counted(run.mesh.shard, "rank"),
      run.mesh.data == 1 ? "" : " each", run.mesh.tensor, counted(batch.batch, "sequence"),
      config.batch.sequence_length, counted(batch.num_microbatches(), "microbatch", "microbatches"), batch.microbatch);
  text += frozen_line(config, plan, spec);
  if (batch.idle() > 0) text += fmt::format("  {:.1f} % of the sequence slots are masked\n", 100 * batch.idle());
  text += memory_table(config, run, plan) + checkpoint_line(config, run) +
          traffic_table(run.mesh, traffic_of(run.mesh, run.traces)) + work_table(config, run);
  if (run.faults.empty()) return text + "transfers: all match and drain\n";
  text += "transfers: FAULTS\n";
  for (size_t i = 0; i < run.faults.size() && i < 20; i++) text += "  " + run.faults[i] + "\n";
  if (run.faults.size() > 20) text += fmt::format("  and {} more\n", run.faults.size() - 20);
  return text;
}

}  // namespace megalith
