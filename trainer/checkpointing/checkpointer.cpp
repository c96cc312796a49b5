#include "trainer/checkpointing/checkpointer.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "checkpoints/directory.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"
#include "trainer/checkpointing/state_reader.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/machine/version.h"
#include "trainer/step/process_memory.h"

namespace megalith {

namespace {

static_assert(RankFileWriter::bytes(RankFileWriter::usual_part) == save_buffers);

void check_names_folder(const std::string& init_from) {
  CHECK(std::filesystem::is_directory(init_from),
        "checkpoint.init_from = {} is not a folder; name a checkpoint, a run folder or a Hugging Face GPT-2 folder",
        init_from);
}

// The weights of checkpoint.init_from, which must be those of this model.
WeightSource open_initial_weights(const Config& config) {
  const std::string& path = config.checkpoint.init_from;
  check_names_folder(path);
  WeightSource source = open_weights(path);
  check_same_model("checkpoint.init_from = " + path, source.model, config.model);
  return source;
}

void check_resumable(const std::string& path, const Manifest& manifest, const ModelConfig& here) {
  check_same_model("checkpoint " + path, model_of(manifest, path), here);
}

bool names_a_checkpoint(const std::string& resume) { return resume != "auto" && resume != "never"; }

// Checkpoints that were complete once hold work that a start from the beginning would bury.
void check_none_was_complete(const std::string& directory, const std::vector<SkippedCheckpoint>& skipped) {
  const auto was_complete = [](const SkippedCheckpoint& s) { return s.published; };
  const auto newest = std::find_if(skipped.begin(), skipped.end(), was_complete);
  CHECK(newest == skipped.end(),
        "of {} in {} none is complete and finite; the newest: {}. Repair it or, to start again from step 0, move "
        "them away or set checkpoint.resume = never",
        counted(std::count_if(skipped.begin(), skipped.end(), was_complete), "checkpoint"), directory, newest->reason);
}

}  // namespace

void check_start(const Config& config, const RunFingerprint& fingerprint) {
  const auto check = [&](const std::string& path, const Manifest& manifest) {
    check_resumable(path, manifest, config.model);
    check_fingerprint("checkpoint " + path, manifest.state, fingerprint, config);
  };
  const CheckpointConfig& checkpoint = config.checkpoint;
  const CheckpointListing listing = scan_checkpoints(checkpoint.directory);
  const std::string newest = listing.complete.empty() ? "" : listing.complete.front();
  CHECK(checkpoint.resume != "never" || newest.empty(),
        "checkpoint.resume = never, but {} holds {}, the newest {}; use another run.output, or resume = auto",
        checkpoint.directory, counted(listing.complete.size(), "checkpoint"), newest);
  if (names_a_checkpoint(checkpoint.resume)) {
    const Manifest manifest = CheckpointReader(checkpoint.resume).manifest();
    check(checkpoint.resume, manifest);
    if (newest.empty()) return;
    const int64_t last = CheckpointReader(newest).manifest().step;
    CHECK(last <= manifest.step,
          "checkpoint.resume = {} is of step {}, but {} goes on to step {} and nothing is overwritten; use another "
          "run.output, move the newer ones away, or resume = auto",
          checkpoint.resume, manifest.step, checkpoint.directory, last);
  } else if (!newest.empty()) {
    check(newest, CheckpointReader(newest).manifest());
  } else {
    if (checkpoint.resume != "never") check_none_was_complete(checkpoint.directory, listing.skipped);
    if (!checkpoint.init_from.empty())
      check_same_tokenizer("checkpoint.init_from = " + checkpoint.init_from, open_initial_weights(config),
                           fingerprint.tokenizer, fingerprint.tokenizer_name);
  }
}

Config load_run_config(const std::string& toml_path, const std::vector<std::string>& overrides) {
  const CheckpointConfig places = load_places(toml_path, overrides).checkpoint;
  if (places.init_from.empty()) return load_config(toml_path, overrides);
  std::string weights = places.init_from;
  if (!std::filesystem::is_directory(weights)) {
    const std::vector<std::string> saved = list_checkpoints(places.directory);
    if (names_a_checkpoint(places.resume))
      weights = places.resume;
    else if (!saved.empty())
      weights = saved.front();
    check_names_folder(weights);
  }
  const WeightSource source = open_weights(weights);
  return load_config(toml_path, overrides, {"checkpoint.init_from = " + weights, source.model, source.dropout});
}

Checkpointer::Checkpointer(const Config& config, const Session& session, Trainer& trainer,
                           std::optional<RunFingerprint> fingerprint)
    : config_(config), session_(session), trainer_(trainer), fingerprint_(std::move(fingerprint)) {}

std::vector<HeldShard> Checkpointer::held(bool parameters_only) const {
  std::vector<HeldShard> all;
  const std::vector<Unit>& units = trainer_.stage().sharding().units();
  const auto hold = [&](const std::string& path, const Unit& unit, const Tensor& values) {
    for (HeldShard& shard : held_shards(unit, path, values, unit.plan().shard)) all.push_back(std::move(shard));
  };
  for (size_t u = 0; u < units.size(); u++) {
    hold(std::string(parameters_path), units[u], units[u].master());
    if (parameters_only) continue;
    for (const Optimizer::State& state : trainer_.optimizer().state())
      hold(state.path + "/", units[u], state.by_unit[u]);
  }
  return all;
}

std::vector<HeldShard> Checkpointer::shards_of(const std::vector<SavedTensor>& tensors) const {
  std::vector<HeldShard> all;
  for (const SavedTensor& t : tensors) {
    const std::string path = t.path.empty() ? std::string(parameters_path) : t.path + "/";
    const Unit& unit = trainer_.stage().sharding().units()[t.unit];
    for (HeldShard& shard : held_shards(unit, path, t.values, t.part)) all.push_back(std::move(shard));
  }
  return all;
}

int64_t Checkpointer::bytes() const {
  int64_t all = 0;
  for (const HeldShard& h : shards_of(trainer_.saved_tensors())) all += h.data.bytes();
  return all;
}

std::vector<std::string> Checkpointer::prune(const Stability& stability) const try {
  const CheckpointConfig& c = config_.checkpoint;
  return prune_checkpoints(
             c.directory, c.keep,
             [&](const auto& steps) { return needed_checkpoints(steps, stability, c.settle, c.keep_every); })
      .failures;
} catch (const Error& e) {  // what is there cannot be seen; a save that cannot be made for it says so itself
  return {e.what()};
}

Saving::Task Checkpointer::task(const Progress& progress, bool keep_all, std::vector<ShardToWrite> shards) const {
  const std::string& directory = config_.checkpoint.directory;
  Saving::Task task{.directory = directory, .step = progress.step, .shards = std::move(shards), .state = {}};
  const Optimizer::History history = trainer_.optimizer().history(trainer_.stream());
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
  task.state["init_from"] = resumed_.is_object() ? resumed_.value("init_from", "") : config_.checkpoint.init_from;
  task.state.update(progress.stability.to_json());
  task.state.update(describe_tokenizer(config_.data.tokenizer.empty() ? "" : run_tokenizer(config_),
                                       checkpoint_path(directory, progress.step)));
  if (fingerprint_) {
    task.state["course"] = to_json(*fingerprint_);
    task.state["orders"] = orders_with(resumed_, resumed_at_.step, resumed_at_.sequences, *fingerprint_);
  }
  if (!keep_all) task.prune = [this, stability = progress.stability] { return prune(stability); };
  return task;
}

Saved Checkpointer::save(const Progress& progress, bool keep_all) {
  std::optional<Saving> saving;
  together(session_, [&] {
    std::vector<ShardToWrite> shards;
    for (const HeldShard& h : shards_of(trainer_.saved_tensors()))
      shards.push_back(shard_to_write(trainer_.stream(), h));
    saving.emplace(session_, writer_, task(progress, keep_all, std::move(shards)));
  });
  do saving->work();
  while (saving->agree());
  return saving->saved();
}

void Checkpointer::begin_save(const Progress& progress, bool keep_all) {
  CHECK(!saving(), "a save of step {} begins while another is under way", progress.step);
  together(session_, [&] {
    std::vector<ShardToWrite> shards;
    for (const HeldShard& h : shards_of(trainer_.copy_state())) shards.push_back(shard_to_write_on_host(h));
    async_save_.reset(new AsyncSave{Saving(session_, writer_, task(progress, keep_all, std::move(shards)))});
  });
  begin_phase();
}

void Checkpointer::begin_phase() {
  phases_++;
  async_save_->thread = std::make_unique<Background>([saving = &async_save_->saving] { saving->work(); });
}

std::optional<Saved> Checkpointer::go_on() {
  async_save_->thread->wait();
  std::unique_ptr<AsyncSave> save = std::move(async_save_);  // it is over if this throws
  if (!save->saving.agree()) return save->saving.saved();
  async_save_ = std::move(save);
  begin_phase();
  return {};
}

std::optional<Saved> Checkpointer::finish() {
  if (!saving()) return {};
  trainer_.await_copy();
  for (;;)
    if (std::optional<Saved> saved = go_on()) return saved;
}

RestartPoint Checkpointer::choose_restart(const Stability& stability, const LastWeights& last) {
  RestartPoint back;
  together(session_, [&] {
    if (session_.rank() != 0) return;
    const std::vector<std::string> all = list_checkpoints(config_.checkpoint.directory);  // newest first
    const std::optional<int64_t> step = restart_step(steps_of(all), stability, config_.checkpoint.settle, last);
    for (const std::string& path : all) {
      if (step && step_of_folder(path) == step) {
        back.path = path;
        back.step = *step;
        back.stable_after = stability.stable_after(*step);
        break;
      }
      back.suspects.push_back(set_aside(path, Aside::suspect));
    }
  });
  back.last_weights = last.stable && back.step >= last.since;
  using Text = std::tuple<std::string, int64_t, int64_t, bool, std::vector<std::string>>;
  std::tie(back.path, back.step, back.stable_after, back.last_weights, back.suspects) =
      of_all_ranks(session_, Text(back.path, back.step, back.stable_after, back.last_weights, back.suspects)).front();
  return back;
}

Progress Checkpointer::load(CheckpointReader& reader) {
  trainer_.clear();
  for (const HeldShard& h : held(false)) read_shard(trainer_.stream(), h, reader);
  // Before steps could be skipped, none was.
  const StateReader state(reader.manifest(), reader.folder());
  const int64_t step = reader.manifest().step;
  const Progress progress{.step = step,
                          .sequences = state.count("sequences"),
                          .skipped = state.count("skipped", 0),
                          .skipped_in_a_row = state.count("skipped_in_a_row", 0),
                          .stability = Stability::from(state, step)};
  trainer_.optimizer().restore(trainer_.stream(), {.updates = state.count("updates", step),
                                                   .skipped = progress.skipped_in_a_row,
                                                   .norms = state.numbers("norms"),
                                                   .loss_scale = state.number("loss_scale", 0),
                                                   .overflows = state.count("overflows", 0),
                                                   .good_steps = state.count("good_steps", 0)});
  return progress;
}

namespace {

// The weights that a run began from are those that it began from, whatever its config says later.
void say_unused_init_from(const CheckpointConfig& checkpoint, const std::string& resumed, const nlohmann::json& state) {
  const std::string began = state.value("init_from", "");
  if (checkpoint.init_from.empty() || checkpoint.init_from == began) return;
  log_warning(
      "checkpoint.init_from = {} has no effect: the run goes on from {}{}; for a run from other weights choose another "
      "run.output",
      checkpoint.init_from, resumed, began.empty() ? "" : ", and began from " + began);
}

}  // namespace

std::optional<Progress> Checkpointer::resume() {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  const std::string& wanted = checkpoint.resume;

  // Rank 0 looks, so that all ranks try the same paths.
  std::vector<std::string> paths;
  together(session_, [&] {
    if (session_.rank() != 0) return;
    if (names_a_checkpoint(wanted)) {
      paths = {wanted};
      return;
    }
    CheckpointListing listing = scan_checkpoints(checkpoint.directory);
    for (const SkippedCheckpoint& skipped : listing.skipped)
      log_warning("checkpoint {} is not used: {}", skipped.path, skipped.reason);
    paths = std::move(listing.complete);
  });
  paths = from_cbor(session_.broadcast_text(to_cbor(paths))).get<std::vector<std::string>>();
  if (paths.empty()) return std::nullopt;

  std::vector<std::string> unreadable;
  bool changed = false;
  for (const std::string& path : paths) {
    // Only damage makes it try the one before. All else is the user's to mend: a checkpoint of another model, one that
    // may not be read, or that some of the ranks do not see.
    std::optional<CheckpointReader> reader;
    together(session_, [&] {
      try {
        reader.emplace(path);
      } catch (const CorruptFile& e) {
        FAIL("{}, but rank 0 has just found this checkpoint complete; do all ranks see the same folder?", e.what());
      }
      check_resumable(path, reader->manifest(), config_.model);
      changed = false;
      if (fingerprint_)
        for (const std::string& line :
             check_fingerprint("checkpoint " + path, reader->manifest().state, *fingerprint_, config_)) {
          log_info("{}", line);
          changed = reader->manifest().state.contains("course");
        }
      if (const std::string values = what_is_not_finite(reader->manifest()); !values.empty())
        log_warning("checkpoint {} holds {}", path, values);
    });
    Progress progress;
    std::string damage;
    together(session_, [&] {
      try {
        progress = load(*reader);
      } catch (const CorruptFile& e) {
        damage = e.what();
      }
    });
    damage = merge_messages(session_, damage);
    if (!damage.empty()) {
      if (names_a_checkpoint(wanted)) throw JobError(__FILE__, __LINE__, damage);
      if (session_.rank() == 0) log_warning("checkpoint {} is damaged, trying the one before: {}", path, damage);
      unreadable.push_back(path);
      continue;
    }
    // Out of the way of the checkpoints to come, but only now that an older one has been read.
    together(session_, [&] {
      if (session_.rank() == 0)
        for (const std::string& bad : unreadable) log_warning("{} is now {}", bad, set_aside(bad));
    });
    trainer_.weights_loaded();
    if (session_.rank() == 0) say_unused_init_from(checkpoint, path, reader->manifest().state);
    resumed_ = reader->manifest().state;
    resumed_at_ = progress;
    if (changed) progress.stability.forget_losses();
    return progress;
  }
  throw JobError(__FILE__, __LINE__,
                 fmt::format("of {} in {} none can be read; move them away to start again, or name an "
                             "older copy with checkpoint.resume",
                             counted(paths.size(), "checkpoint"), checkpoint.directory));
}

void Checkpointer::initialize_weights() {
  together(session_, [&] {
    const WeightSource source = open_initial_weights(config_);
    trainer_.clear();
    for (const HeldShard& h : held(true)) read_shard(trainer_.stream(), h, *source.tensors);
  });
  trainer_.weights_loaded();
}

}  // namespace megalith
