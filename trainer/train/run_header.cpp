#include "trainer/train/run_header.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoints/store.h"
#include "kernels/linear/gemm_cuda.h"
#include "kernels/stream/device.h"
#include "kernels/system/counted.h"
#include "trainer/checkpointing/disk_need.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/machine/machine.h"
#include "trainer/machine/version.h"

namespace megalith {

void log_data(const Config& config, const Inputs& inputs) {
  const Loader& data = inputs.data;
  for (const std::string& line : describe_data("data.train", data, config.train.steps * config.batch.global_batch_size))
    log_info("{}", line);
  for (const ValidationSet& set : inputs.validation) log_info("{}", describe_validation(set));
  for (const std::string& line : inputs.trained_on_twice) log_warning("{}", line);
  if (config.data.isolate_documents) {
    const DocumentCount found = count_documents(data.streams(), config.data.end_of_text);
    log_info("data.isolate_documents: {} within the first {}",
             found.begins == 1 ? "1 document begins" : fmt::format("{} documents begin", found.begins),
             counted(found.tokens, "token"));
    if (found.begins == 0)
      log_warning(
          "data.isolate_documents = true finds no documents there: token {} (data.end_of_text) does not occur, and no "
          "index has their ends",
          config.data.end_of_text);
  }
  if (inputs.trained_on_validation)
    log_warning(
        "data.train has files of data.validation, as data.allow_overlap permits: validation losses are on training "
        "data and tell nothing about other text");
}

void log_run_header(const Config& config, const Session& session, const RankContext& work, int threads) {
  const Plan& plan = work.plan;
  log_info("{}", version());
  const std::vector<UnitSpec> spec = model_spec(config.model);
  const int64_t all = num_parameters(spec), trained = num_trained(spec);
  log_info("parameters {}{}, layers {}; {}, {} each, {}, {}; run folder {}", all,
           trained < all ? fmt::format(", of which {} are trained", trained) : "", config.model.layers,
           plan.mesh.summary(), counted(threads, "thread"), to_string(config.parallel.sharding_strategy),
           to_string(config.precision.compute), config.run.output);
  if (const int64_t below = config.parallel.replicate_below; below > 0) {
    const auto units = std::ranges::count_if(plan.units, [&](const UnitPlan& unit) { return unit.numel <= below; });
    log_line(fmt::format("{}parallel.replicate_below = {}: {} of the {} units of rank 0 are that small",
                         units == 0 ? "warning: " : "", below, units, plan.units.size()));
  }
  if (work.device.world == World::cuda) {
    const device::Properties gpu = device::properties();
    log_info("each rank on a GPU; rank {}: {}, compute capability {}.{}, {:.1f} GiB, driver for CUDA {}{}{}",
             session.rank(), gpu.name, gpu.major, gpu.minor, static_cast<double>(gpu.memory) / (1 << 30), gpu.driver,
             session.size() > 1 ? "; " + work.transport->name() : "",
             work.symmetric ? ", " + work.symmetric->in_words() : "");
    for (const std::string& line : work.runtime->stream.queue().gemm->describe(work.rehearsal.gemms))
      log_info("{}", line);
  }
  if (!work.device.why_cpu.empty()) log_info("on the CPU: {}", work.device.why_cpu);
  if (const std::string crowded = crowded_threads(threads); !crowded.empty()) log_warning("{}", crowded);
  if (!work.layout.warning.empty()) log_warning("{}", work.layout.warning);
  if (plan.batch.idle() > 0)
    log_warning(
        "batch.global_batch_size = {} does not fill {} microbatches of {} on {} data-parallel ranks: {:.0f} % of the "
        "FLOPs are for masked sequences",
        plan.batch.batch, plan.batch.num_microbatches(), plan.batch.microbatch, plan.batch.ranks,
        100 * plan.batch.idle());
}

void log_memory(const MemorySizes& memory, const ProcessMemory& process) {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const int64_t arenas = memory.total(MemoryPlace::device), host = memory.total(MemoryPlace::host);
  if (process.total() == 0) return log_info("planned memory of the fullest rank: {:.1f} MiB", mib(arenas));
  std::string parts = fmt::format("tensors {:.1f}", mib(arenas + host));
  for (const auto& [name, bytes] : process.parts())
    if (bytes > 0) parts += fmt::format(", {} {:.1f}", name, mib(bytes));
  log_info("planned memory of the fullest rank: {:.1f} MiB ({})", mib(arenas + host + process.total()), parts);
}

void log_disk(const Config& config, const Session& session, int64_t mine, int64_t completed) {
  int64_t bytes = 0;
  for (const int64_t theirs : of_all_ranks(session, mine)) bytes += theirs;
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::string& folder = config.checkpoint.directory;
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(folder, error);
    if (error) return;
    const DiskNeed need = disk_need(config, bytes, completed, std::ssize(CheckpointStore(config.checkpoint).usable()),
                                    static_cast<int64_t>(space.available));
    if (need.fits) return log_info("{}", need.words);
    log_warning("{}: free some space, keep fewer checkpoints or name another checkpoint.directory", need.words);
  });
}

}  // namespace megalith
