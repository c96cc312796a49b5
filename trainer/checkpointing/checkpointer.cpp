#include "trainer/checkpointing/checkpointer.h"

#include <algorithm>
#include <set>

#include "checkpoints/store.h"
#include "kernels/system/long_work.h"
#include "trainer/checkpointing/trainer_shards.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/agreement.h"
#include "trainer/machine/version.h"
#include "trainer/step/process_memory.h"

namespace megalith {

static_assert(RankFileWriter::bytes(RankFileWriter::usual_part) == save_buffers);

Checkpointer::Checkpointer(const Config& config, const Session& session, Trainer& trainer, RunRecord record)
    : config_(config), session_(session), trainer_(trainer), record_(std::move(record)) {
  together(session_, [] { start_hdf5(); });  // needs memory in addition to the writer's
}

int64_t Checkpointer::bytes() const {
  int64_t all = 0;
  for (const HeldShard& h : trainer_shards(trainer_, trainer_.saved_tensors())) all += h.data.bytes();
  return all;
}

std::vector<std::string> Checkpointer::prune(const Stability& stability) const try {
  const CheckpointConfig& c = config_.checkpoint;
  return CheckpointStore(c)
      .prune(c.keep,
             [&](const auto& steps) {
               std::set<int64_t> needed = needed_checkpoints(steps, stability, c.settle, c.keep_every);
               if (const std::string best = c.keep_best ? best_checkpoint(c.directory) : ""; !best.empty())
                 needed.insert(step_of_folder(best).value());
               return needed;
             })
      .failures;
} catch (const Error& e) {
  return {e.what()};
}

Saving::Task Checkpointer::task(const Progress& progress, bool keep_all, std::vector<ShardToWrite> shards) const {
  const CheckpointStore store(config_.checkpoint);
  Saving::Task task{.store = store, .step = progress.step, .shards = std::move(shards), .state = {}};
  const Optimizer::UpdateCounts history = trainer_.optimizer().update_counts(trainer_.stream());
  if (session_.rank() != 0) return task;
  task.state = {{"written_by", version()},
                {"sequences", progress.sequences},
                {"updates", history.updates},
                {"skipped", progress.skipped},
                {"skipped_in_a_row", progress.skipped_in_a_row},
                {"norms", history.norms},
                {"loss_scale", history.loss_scale},
                {"overflows", history.overflows},
                {"good_steps", history.good_steps},
                {"model", describe_model(config_.model)},
                {"config", to_toml(config_)}};
  task.state["init_from"] = record_.init_from;
  task.state.update(progress.stability.to_json());
  task.state.update(progress.validation.to_json());
  task.state.update(
      describe_tokenizer(config_.data.tokenizer.empty() ? "" : run_tokenizer(config_), store.path_of(progress.step)));
  if (record_.base) task.state.update(describe_adapter(config_.adapter, *record_.base, store.path_of(progress.step)));
  if (record_.fingerprint) {
    task.state["course"] = to_json(*record_.fingerprint);
    task.state["orders"] = record_.orders;
  }
  if (!keep_all) task.prune = [this, stability = progress.stability] { return prune(stability); };
  return task;
}

SavedCheckpoint Checkpointer::save(const Progress& progress, bool keep_all) {
  std::optional<Saving> saving;
  std::optional<LongWork> work;
  together(session_, [&] {
    std::vector<ShardToWrite> shards;
    int64_t elements = 0;
    for (const HeldShard& h : trainer_shards(trainer_, trainer_.saved_tensors())) {
      shards.push_back(shard_to_write(trainer_.stream(), h));
      elements += h.shard.numel();
    }
    work.emplace("saving after step " + std::to_string(progress.step), elements);
    for (ShardToWrite& shard : shards)
      shard.show = [show = std::move(shard.show), &work](int64_t begin, int64_t end, const auto& use) {
        show(begin, end, use);
        work->advance(end - begin);
      };
    saving.emplace(session_, writer_, task(progress, keep_all, std::move(shards)));
  });
  do saving->work();
  while (saving->agree());
  return saving->saved();
}

void Checkpointer::begin_save(const Progress& progress, bool keep_all) {
  CHECK(!saving(), "a save of step {} begins while another is in progress", progress.step);
  together(session_, [&] {
    std::vector<ShardToWrite> shards;
    for (const HeldShard& h : trainer_shards(trainer_, trainer_.copy_state()))
      shards.push_back(shard_to_write_on_host(h));
    async_save_.reset(new AsyncSave{Saving(session_, writer_, task(progress, keep_all, std::move(shards)))});
  });
  begin_phase();
}

void Checkpointer::begin_phase() {
  phases_++;
  async_save_->thread = std::make_unique<Background>([saving = &async_save_->saving] { saving->work(); });
}

std::optional<SavedCheckpoint> Checkpointer::advance() {
  async_save_->thread->wait();
  std::unique_ptr<AsyncSave> save = std::move(async_save_);  // if agree() throws, the save is over
  if (!save->saving.agree()) return save->saving.saved();
  async_save_ = std::move(save);
  begin_phase();
  return {};
}

std::optional<SavedCheckpoint> Checkpointer::finish() {
  if (!saving()) return {};
  trainer_.await_copy();
  for (;;)
    if (std::optional<SavedCheckpoint> saved = advance()) return saved;
}

}  // namespace megalith
