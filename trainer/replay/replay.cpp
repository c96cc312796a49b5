#include "trainer/replay/replay.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "checkpoints/store.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"
#include "kernels/tensor/finite.h"
#include "trainer/checkpointing/held_shards.h"
#include "trainer/checkpointing/resumer.h"
#include "trainer/job/agreement.h"
#include "trainer/job/rank_context.h"
#include "trainer/job/ranks_agree.h"
#include "trainer/log/log.h"
#include "trainer/machine/machine.h"
#include "trainer/step/text_data.h"
#include "trainer/train/bad_step_file.h"
#include "trainer/train/skipped_step.h"

namespace megalith {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BadOp, place, op, part, microbatch, rank, values, of)

void check_replayable(const std::vector<std::string>& overrides) {
  for (const std::string& override : overrides) {
    const std::string key = override.substr(0, override.find('='));
    bool known = false;
    for (const char* beginning : {"parallel.", "memory.", "precision.", "communication.", "batch.microbatch_size",
                                  "run.device", "data.train", "checkpoint.directory"})
      known = known || key.starts_with(beginning);
    CHECK(known,
          "override `{}`: a replay repeats the step as it was; it may change parallel.*, memory.*, precision.*, "
          "communication.*, batch.microbatch_size and run.device, and data.train and checkpoint.directory if files "
          "have moved",
          override);
  }
}

namespace {

namespace fs = std::filesystem;

Config config_of_run(const ReplayOptions& o, const std::optional<KeptStep>& kept) {
  check_replayable(o.overrides);
  const std::string path = o.run + "/config.toml";
  CHECK(fs::exists(path), "{} has no config.toml; name the folder of a run", o.run);
  std::vector<std::string> all{"run.output=" + o.run, "checkpoint.resume=auto", "checkpoint.allow_changes=true"};
  all.insert(all.end(), o.overrides.begin(), o.overrides.end());
  Config config = kept ? parse_config(kept->config, fmt::format("the config of step {} in {}", o.step, o.run), all)
                       : load_config(path, all);
  CHECK(config.model.vocab > 0, "{} does not have model.vocab; is it the config of a run?", path);
  return config;
}

// Checks the fingerprints of suspects, which may come from another attempt at the same steps.
std::string newest_before(const CheckpointStore& store, int64_t step, const RunFingerprint& here) {
  for (const std::string& path : store.before(step)) try {
      if (step_of_folder(path)) return path;
      const Manifest manifest = CheckpointReader(path).manifest();
      if (differences(run_fingerprint_from(manifest.state.at("course")), here, manifest.step).empty()) return path;
    } catch (const nlohmann::json::exception&) {  // an unknown fingerprint
    }
  return "";
}

// Returns the names of this rank's weights that are not finite.
std::vector<std::string> bad_weights_here(Trainer& trainer) {
  std::vector<std::string> names;
  Stream& s = trainer.stream();
  for (const Unit& unit : trainer.stage().sharding().units())
    for (const HeldShard& held : held_shards(unit, "", unit.master(), {0, unit.plan().numel})) {
      int64_t bad = 0;
      const ShardToWrite stored = shard_to_write(s, held);
      constexpr int64_t most = int64_t{4} << 20;
      for (int64_t begin = 0; begin < held.shard.numel(); begin += most) {
        const int64_t end = std::min(begin + most, held.shard.numel());
        stored.show(begin, end,
                    [&](const void* values) { bad += count_not_finite(values, stored.dtype, end - begin); });
      }
      if (bad > 0) names.push_back(held.shard.name);
    }
  return names;
}

// Sets the first bad op over all ranks, and the ranks that have it.
void agree_on_first(const Session& session, const std::optional<BadOp>& mine, Replayed& replayed) {
  std::vector<BadOp> found;
  if (mine) found.push_back(*mine);
  for (const std::vector<BadOp>& theirs : of_all_ranks(session, found))
    for (const BadOp& op : theirs) {
      if (replayed.first && replayed.first->place < op.place) continue;
      if (!replayed.first || op.place < replayed.first->place) {
        replayed.first = op;
        replayed.ranks.clear();
      }
      replayed.ranks.push_back(op.rank);
    }
}

std::string recorded_in_words(const KeptStep& kept, const Replayed& replayed, const Session& session) {
  if (number_or_word(replayed.scalars.loss) == kept.loss &&
      number_or_word(replayed.scalars.grad_norm) == kept.grad_norm)
    return "loss and norm are bit-identical to the run's";
  return fmt::format("in the run the loss was {} and the norm {}{}", json_text(kept.loss), json_text(kept.grad_norm),
                     kept.ranks == session.size() ? "" : fmt::format(", on {}", counted(kept.ranks, "rank")));
}

class Replay {
 public:
  Replay(const ReplayOptions& options, const Session& session) : options_(options), session_(session) {
    together(session, [&] {
      CHECK(options.step >= 1, "--step {}; steps count from 1", options.step);
      if (session.rank() != 0) log_nowhere();
      kept_ = read_bad_step(options.run, options.step);
      config_ = config_of_run(options, kept_);
      find_masks(config_);
      config_.checkpoint.asynchronous = false;
    });
    check_ranks_agree(config_, session);
    use_threads(session.ranks_on_this_node());
    work_.emplace(config_, session);
    together(session, [&] {
      work_->rehearse();
      data_ =
          open_data("data.train", config_.data.train, config_, config_.data.shuffle, session.rank(), session.size());
    });
    choose_checkpoint();
    work_->open();
    load();
  }

  Replayed step() {
    for (int64_t s = progress_.step + 1; s < options_.step; s++) {
      const StepScalars scalars = train();
      log_info("step {}, before it: {}", s, in_words(scalars));
    }
    Replayed replayed{.step = options_.step, .from = config_.checkpoint.resume, .from_step = from_step_};
    together(session_, [&] { replayed.bad_weights = bad_weights_here(*work_->trainer); });
    const int64_t first_sequence = progress_.sequences;
    FirstBadOp watcher(work_->plan, work_->runtime->stream);
    work_->trainer->stage().follow([&](const Instruction* i) { watcher.follow(i); });
    work_->runtime->stream.watch_ops(&watcher);
    replayed.scalars = train();
    work_->runtime->stream.watch_ops(nullptr);
    work_->trainer->stage().follow({});
    replayed.what = in_words(replayed.scalars);
    gather(watcher, first_sequence, replayed);
    if (kept_) replayed.recorded = recorded_in_words(*kept_, replayed, session_);
    return replayed;
  }

 private:
  void choose_checkpoint() {
    std::string path = options_.checkpoint;
    together(session_, [&] {
      if (session_.rank() != 0) return;
      fingerprint_ = run_fingerprint(config_, nullptr, *data_, "");
      if (path.empty()) path = newest_before(CheckpointStore(config_.checkpoint), options_.step, *fingerprint_);
      if (!path.empty()) {
        const int64_t step = read_manifest(path).step;
        CHECK(step < options_.step, "{} is of step {}, which is not before step {}", path, step, options_.step);
      }
    });
    config_.checkpoint.resume = session_.broadcast_text(path);
  }

  void load() {
    Trainer& trainer = *work_->trainer;
    const std::string& path = config_.checkpoint.resume;
    Resumer resumer(config_, session_, trainer, fingerprint_);
    if (!path.empty())
      progress_ = resumer.resume().value();
    else if (!config_.checkpoint.init_from.empty())
      resumer.initialize_weights();
    else
      trainer.initialize();
    resumer.resume_data(*data_);
    from_step_ = progress_.step;
    const int64_t between = options_.step - from_step_ - 1;
    log_info("replaying step {} of {} on {}, from {}{}", options_.step, options_.run, work_->plan.mesh.summary(),
             path.empty() ? "the initial weights, since no checkpoint is older" : path,
             between == 0 ? "" : fmt::format(", after {} in between", counted(between, "step")));
  }

  StepScalars train() {
    StepScalars scalars;
    work_->runtime->stream.receive(work_->trainer->step(progress_.step, progress_.sequences,
                                                        feed_from(*data_, progress_.sequences, config_.model.vocab), {},
                                                        &scalars));
    progress_.step++;
    progress_.sequences += config_.batch.global_batch_size;
    return scalars;
  }

  std::string in_words(const StepScalars& s) const {
    const std::string numbers = fmt::format("loss {}, norm {}", s.loss, s.grad_norm);
    return s.skipped() ? fmt::format("{}; skipped: {}", numbers, why_skipped(config_, s)) : numbers;
  }

  void gather(const FirstBadOp& watcher, int64_t first_sequence, Replayed& replayed) {
    std::set<std::string> names;
    for (const auto& theirs : of_all_ranks(session_, replayed.bad_weights)) names.insert(theirs.begin(), theirs.end());
    replayed.bad_weights = {names.begin(), names.end()};
    agree_on_first(session_, watcher.first(), replayed);
    if (!replayed.first || replayed.first->microbatch < 0) return;
    std::vector<std::string> samples;
    if (replayed.first->rank == session_.rank())
      samples = sample_names(work_->plan, *data_, replayed.first->microbatch, first_sequence);
    replayed.samples = fmt::format(
        "{}", fmt::join(of_all_ranks(session_, samples).at(static_cast<size_t>(replayed.first->rank)), ", "));
  }

  const ReplayOptions& options_;
  const Session& session_;
  std::optional<KeptStep> kept_;
  Config config_;
  std::optional<RankContext> work_;
  std::optional<Loader> data_;
  std::optional<RunFingerprint> fingerprint_;  // on rank 0
  Progress progress_;
  int64_t from_step_ = 0;
};

}  // namespace

Replayed replay(const ReplayOptions& options, const Session& session) { return Replay(options, session).step(); }

std::vector<std::string> lines_of(const Replayed& replayed) {
  std::vector<std::string> lines{fmt::format("step {}: {}", replayed.step, replayed.what)};
  if (!replayed.recorded.empty()) lines.push_back(replayed.recorded);
  for (const std::string& name : replayed.bad_weights)
    lines.push_back(fmt::format("before the step the weights {} were not finite", name));
  if (!replayed.first) {
    lines.push_back("the output of every op is finite");
    return lines;
  }
  const BadOp& first = *replayed.first;
  lines.push_back(
      fmt::format("first not finite: {}, op {} of {}{}, on rank {}: {} of {}", first.op, first.place[2], first.part,
                  first.microbatch < 0
                      ? ""
                      : fmt::format(", microbatch {} (samples {} of data.train)", first.microbatch, replayed.samples),
                  fmt::join(replayed.ranks, ", "), first.values, counted(first.of, "value")));
  return lines;
}

}  // namespace megalith
