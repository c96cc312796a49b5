#include "trainer/checkpointing/checkpointer.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "checkpoints/directory.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/checkpointing/state_reader.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"
#include "trainer/machine/version.h"
#include "trainer/step/process_memory.h"

namespace megalith {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RestartPoint, path, step, stable_after, last_weights, suspects)

static_assert(RankFileWriter::bytes(RankFileWriter::usual_part) == save_buffers);

Checkpointer::Checkpointer(const Config& config, const Session& session, Trainer& trainer,
                           std::optional<RunFingerprint> fingerprint)
    : config_(config), session_(session), trainer_(trainer), fingerprint_(std::move(fingerprint)) {
  together(session_, [] { start_hdf5(); });
}

std::vector<HeldShard> Checkpointer::held(Units of, bool parameters_only) const {
  std::vector<SavedTensor> all;
  const std::vector<Unit>& units = trainer_.stage().sharding().units();
  for (size_t u = 0; u < units.size(); u++) {
    const Interval shard = units[u].plan().shard;
    const bool frozen = units[u].plan().frozen;
    if (of != Units::all && frozen != (of == Units::frozen)) continue;
    all.push_back({.path = "", .unit = u, .part = shard, .values = units[u].master()});
    if (parameters_only || frozen) continue;
    for (const Optimizer::State& state : trainer_.optimizer().state())
      if (state.elements[u].size() > 0)
        all.push_back({.path = state.path, .unit = u, .part = state.elements[u], .values = state.by_unit[u]});
  }
  return shards_of(all);
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
} catch (const Error& e) {
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
  if (base_) task.state.update(describe_adapter(config_.adapter, *base_, checkpoint_path(directory, progress.step)));
  if (fingerprint_) {
    task.state["course"] = to_json(*fingerprint_);
    task.state["orders"] = orders_;
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
  std::unique_ptr<AsyncSave> save = std::move(async_save_);  // the save is over if agree() throws
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
  return of_all_ranks(session_, back).front();
}

namespace {

// Says what the state of a matrix is read from where the checkpoint is of a run with another optimizer.algorithm.
enum class OtherState { none, momentum_from_moment, moments_from_nothing };

// Changes the name of a shard to the one of the state that it is read from; moments_from_nothing: it stays 0.
OtherState state_to_read(TensorShard& shard, const CheckpointReader& reader) {
  const std::string momentum = std::string(momentum_path) + "/", first = "moments/first/", second = "moments/second/";
  if (reader.holds(shard.name)) return OtherState::none;
  const auto name_of = [&](const std::string& path) { return shard.name.substr(path.size()); };
  if (shard.name.starts_with(momentum) && reader.holds(first + name_of(momentum))) {
    shard.name = first + name_of(momentum);
    return OtherState::momentum_from_moment;
  }
  for (const std::string& path : {first, second})
    if (shard.name.starts_with(path) && reader.holds(momentum + name_of(path))) return OtherState::moments_from_nothing;
  return OtherState::none;
}

}  // namespace

Progress Checkpointer::load(CheckpointReader& reader) {
  const bool all = trainer_.plan().saves_frozen;
  trainer_.clear();
  std::set<OtherState> others;
  for (HeldShard& h : held(all ? Units::all : Units::trained, false)) {
    const OtherState other = state_to_read(h.shard, reader);
    others.insert(other);
    if (other != OtherState::moments_from_nothing) read_shard(trainer_.stream(), h, reader);
  }
  if (others.contains(OtherState::momentum_from_moment))
    log_info(
        "{} is of AdamW: of the matrices of the layers AdamW's first moments go on as Muon's momentum, and their "
        "second "
        "moments are not used",
        reader.folder());
  if (others.contains(OtherState::moments_from_nothing))
    log_info("{} is of Muon: of the matrices of the layers AdamW's moments begin at 0, and Muon's momentum is not used",
             reader.folder());
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

void say_unused_init_from(const CheckpointConfig& checkpoint, const std::string& resumed, const nlohmann::json& state) {
  const std::string began = state.value("init_from", "");
  if (checkpoint.init_from.empty() || checkpoint.init_from == began) return;
  log_warning(
      "checkpoint.init_from = {} has no effect: the run goes on from {}{}; for a run from other weights choose another "
      "run.output",
      checkpoint.init_from, resumed, began.empty() ? "" : ", and began from " + began);
}

}  // namespace

// Lists on rank 0, so that all ranks try the same paths.
std::vector<std::string> Checkpointer::checkpoints_to_try() const {
  std::vector<std::string> paths;
  together(session_, [&] {
    if (session_.rank() != 0) return;
    if (names_a_checkpoint(config_.checkpoint.resume)) {
      paths = {config_.checkpoint.resume};
      return;
    }
    CheckpointListing listing = scan_checkpoints(config_.checkpoint.directory);
    for (const SkippedCheckpoint& skipped : listing.skipped)
      log_warning("checkpoint {} is not used: {}", skipped.path, skipped.reason);
    paths = std::move(listing.complete);
  });
  return from_cbor(session_.broadcast_text(to_cbor(paths))).get<std::vector<std::string>>();
}

bool Checkpointer::check_manifest(const CheckpointReader& reader) const {
  const std::string name = "checkpoint " + reader.folder();
  const Manifest& manifest = reader.manifest();
  check_resumable(reader.folder(), manifest, config_.model);
  CHECK(manifest.state.contains("base") == config_.adapter.in_use(),
        "{} is of a run {} adapters, and adapter.rank = {}; set it as there, or use another run.output", name,
        config_.adapter.in_use() ? "without" : "with", config_.adapter.rank);
  std::vector<std::string> changes;
  if (fingerprint_) changes = check_fingerprint(name, manifest.state, manifest.step, *fingerprint_, config_);
  for (const std::string& line : changes) log_info("{}", line);
  if (fingerprint_)
    for (const std::string& line : told_changes(manifest.state, *fingerprint_)) log_warning("changed: {}", line);
  if (const std::string values = what_is_not_finite(manifest); !values.empty())
    log_warning("{} holds {}", name, values);
  return !changes.empty() && manifest.state.contains("course");
}

std::optional<Progress> Checkpointer::resume() {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  const std::vector<std::string> paths = checkpoints_to_try();
  std::vector<std::string> unreadable;
  // Only damage makes it try the one before. Another model, missing permissions or a folder that some ranks do not see
  // are for the user to fix.
  for (const std::string& path : paths) {
    std::optional<CheckpointReader> reader;
    bool changed = false;
    together(session_, [&] {
      try {
        reader.emplace(path);
      } catch (const CorruptFile& e) {
        FAIL("{}, but rank 0 has just found this checkpoint complete; do all ranks see the same folder?", e.what());
      }
      changed = check_manifest(*reader);
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
      if (names_a_checkpoint(checkpoint.resume)) throw JobError(__FILE__, __LINE__, damage);
      if (session_.rank() == 0) log_warning("checkpoint {} is damaged, trying the one before: {}", path, damage);
      unreadable.push_back(path);
      continue;
    }
    // Damaged checkpoints are set aside only after an older one has been read.
    together(session_, [&] {
      if (session_.rank() == 0)
        for (const std::string& bad : unreadable) log_warning("{} is now {}", bad, set_aside(bad));
    });
    together(session_, [&] { read_base(*reader); });
    trainer_.weights_loaded();
    if (session_.rank() == 0 && !base_) say_unused_init_from(checkpoint, path, reader->manifest().state);
    resumed_ = reader->manifest().state;
    resumed_at_ = progress;
    origin_.checkpoint = path;
    if (fingerprint_) origin_.decay = other_decay(resumed_, *fingerprint_, progress.step);
    if (!origin_.decay.empty())
      log_info("goes on from {} with another decay of the learning rate: {}", path, origin_.decay);
    if (changed) progress.stability.forget_losses();
    return progress;
  }
  if (paths.empty()) return std::nullopt;
  throw JobError(__FILE__, __LINE__,
                 fmt::format("none of {} in {} can be read; move them away to start again, or name an "
                             "older copy with checkpoint.resume",
                             counted(paths.size(), "checkpoint"), checkpoint.directory));
}

void Checkpointer::go_on_in(Loader& data) {
  std::string orders;
  together(session_, [&] {
    if (session_.rank() == 0)
      orders = to_cbor(orders_with(resumed_, resumed_at_.step, resumed_at_.sequences, *fingerprint_, data));
  });
  orders_ = from_cbor(session_.broadcast_text(orders));
  together(session_, [&] { follow(orders_, data); });
  const bool is_new =
      resumed_.is_object() && resumed_.contains("orders") && resumed_.at("orders").size() < orders_.size();
  if (session_.rank() == 0 && is_new)
    for (const std::string& line : describe_change(orders_, data)) log_info("data.train: {}", line);
}

void Checkpointer::initialize_weights() {
  together(session_, [&] {
    check_names_base(config_);
    const WeightSource source = open_initial_weights(config_);
    if (source.grown_rows > 0 && session_.rank() == 0)
      log_info("{} added to the tables of {}: each drawn with the mean and the spread of the others",
               source.grown_rows == 1 ? "1 row is" : fmt::format("{} rows are", source.grown_rows),
               config_.checkpoint.init_from);
    Stream& s = trainer_.stream();
    trainer_.clear();
    const bool all = trainer_.plan().saves_frozen;
    for (const HeldShard& h : held(all ? Units::all : Units::frozen, true)) read_shard(s, h, *source.tensors);
    if (all) return;
    base_ = {std::filesystem::absolute(source.path).lexically_normal().string(), ""};
    if (session_.rank() == 0) base_->fingerprint = weights_fingerprint(*source.tensors, source.model);
    if (config_.adapter.init_from.empty()) return trainer_.initialize_trained();
    const std::unique_ptr<TensorSource> adapters = open_adapters(config_.adapter.init_from, config_.model);
    for (const HeldShard& h : held(Units::trained, true)) read_shard(s, h, *adapters);
  });
  trainer_.weights_loaded();
}

namespace {

// Returns the weights in checkpoint.init_from; of a run folder the checkpoint that was the base, while it is there: the
// run may have gone on since.
std::string base_in(const std::string& init_from, const std::string& recorded) {
  namespace fs = std::filesystem;
  const fs::path named = fs::absolute(init_from).lexically_normal();
  const fs::path found = fs::absolute(find_weights(init_from)).lexically_normal();
  std::error_code absent;
  const bool of_this_run = found != named && found.parent_path() == fs::path(recorded).parent_path();
  return of_this_run && fs::is_directory(recorded, absent) ? recorded : found.string();
}

}  // namespace

void Checkpointer::read_base(const CheckpointReader& reader) {
  if (trainer_.plan().saves_frozen) return;
  const std::string name = "checkpoint " + reader.folder();
  base_ = base_of(reader.manifest(), reader.folder());
  CHECK(base_, "{} names no base", name);
  std::error_code absent;
  if (const std::string& here = config_.checkpoint.init_from; std::filesystem::is_directory(here, absent))
    base_->path = base_in(here, base_->path);
  const WeightSource source = session_.rank() == 0 ? open_base(name, *base_, base_->path) : open_weights(base_->path);
  check_same_model("the base " + base_->path, source.model, config_.model);
  for (const HeldShard& h : held(Units::frozen, true)) read_shard(trainer_.stream(), h, *source.tensors);
}

}  // namespace megalith
