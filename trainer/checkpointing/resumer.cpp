#include "trainer/checkpointing/resumer.h"

#include <filesystem>
#include <set>

#include "checkpoints/store.h"
#include "kernels/system/counted.h"
#include "kernels/system/json.h"
#include "trainer/checkpointing/run_start.h"
#include "trainer/checkpointing/sample_orders.h"
#include "trainer/checkpointing/state_reader.h"
#include "trainer/checkpointing/trainer_shards.h"
#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/agreement.h"
#include "trainer/log/log.h"

namespace megalith {

Resumer::Resumer(const Config& config, const Session& session, Trainer& trainer,
                 std::optional<RunFingerprint> fingerprint)
    : config_(config), session_(session), trainer_(trainer) {
  record_.fingerprint = std::move(fingerprint);
  record_.init_from = config.checkpoint.init_from;
}

namespace {

// Where a matrix's state comes from if the checkpoint was written with another optimizer.algorithm.
enum class OtherState { none, momentum_from_moment, moments_from_nothing };

// Renames a shard to the state from which it is read. moments_from_nothing: it stays 0.
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

Progress Resumer::load(CheckpointReader& reader) {
  const bool all = trainer_.plan().saves_frozen;
  trainer_.clear();
  std::set<OtherState> others;
  std::vector<HeldShard> shards;
  for (HeldShard& h : trainer_shards(trainer_, all ? Units::all : Units::trained, false)) {
    const OtherState other = state_to_read(h.shard, reader);
    others.insert(other);
    if (other != OtherState::moments_from_nothing) shards.push_back(std::move(h));
  }
  read_shards(trainer_.stream(), shards, reader, reader.folder());
  if (others.contains(OtherState::momentum_from_moment))
    log_info(
        "{} is from a run with AdamW: Muon's momentum of the layers' matrices begins with AdamW's first moments, and "
        "the second moments are not used",
        reader.folder());
  if (others.contains(OtherState::moments_from_nothing))
    log_info(
        "{} is from a run with Muon: for the matrices of the layers AdamW's moments begin at 0, and Muon's momentum is "
        "not used",
        reader.folder());
  const StateReader state(reader.manifest(), reader.folder());
  const int64_t step = reader.manifest().step;
  Progress progress{.step = step,
                    .sequences = state.count("sequences"),
                    .skipped = state.count("skipped", 0),
                    .skipped_in_a_row = state.count("skipped_in_a_row", 0),
                    .stability = Stability::from(state, step),
                    .validation = ValidationHistory::from(state)};
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
      "checkpoint.init_from = {} has no effect: the run continues from {}{}; for a run from other weights choose "
      "another run.output",
      checkpoint.init_from, resumed, began.empty() ? "" : ", which began from " + began);
}

}  // namespace

// Lists on rank 0, so that all ranks try the same paths.
std::vector<std::string> Resumer::checkpoints_to_try() const {
  std::vector<std::string> paths;
  together(session_, [&] {
    if (session_.rank() != 0) return;
    if (names_a_checkpoint(config_.checkpoint.resume)) {
      paths = {named_checkpoint(config_.checkpoint)};
      return;
    }
    CheckpointListing listing = CheckpointStore(config_.checkpoint).list();
    for (const SkippedCheckpoint& skipped : listing.skipped)
      log_warning("checkpoint {} is not used: {}", skipped.path, skipped.reason);
    paths = std::move(listing.complete);
  });
  return from_cbor(session_.broadcast_text(to_cbor(paths))).get<std::vector<std::string>>();
}

bool Resumer::check_manifest(const CheckpointReader& reader) const {
  const std::string name = "checkpoint " + reader.folder();
  const Manifest& manifest = reader.manifest();
  check_resumable(reader.folder(), manifest, config_.model);
  CHECK(manifest.state.contains("base") == config_.adapter.in_use(),
        "{} is from a run {} adapters, but adapter.rank = {}; set it to match, or use another run.output", name,
        config_.adapter.in_use() ? "without" : "with", config_.adapter.rank);
  std::vector<std::string> changes;
  if (record_.fingerprint)
    changes = check_fingerprint(name, manifest.state, manifest.step, *record_.fingerprint, config_);
  for (const std::string& line : changes) log_info("{}", line);
  if (record_.fingerprint)
    for (const std::string& line : told_changes(manifest.state, *record_.fingerprint)) log_warning("changed: {}", line);
  if (const std::string values = what_is_not_finite(manifest); !values.empty())
    log_warning("{} holds {}", name, values);
  return !changes.empty() && manifest.state.contains("course");
}

bool Resumer::evaluates_other_data() const {
  bool other = false;
  if (const auto& here = record_.fingerprint) {  // on rank 0
    const std::string then = validation_data_of(resumed_);
    other = !then.empty() && then != validation_data_of({{"course", to_json(*here)}});
  }
  return of_all_ranks(session_, other).front();
}

std::optional<Progress> Resumer::resume() {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  const std::vector<std::string> paths = checkpoints_to_try();
  std::vector<std::string> unreadable;
  // Only after damage does it try the previous checkpoint. Another model, missing permissions or a folder that some
  // ranks do not see are for the user to fix.
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
      if (session_.rank() == 0) log_warning("checkpoint {} is damaged, trying the previous one: {}", path, damage);
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
    if (session_.rank() == 0 && !record_.base) say_unused_init_from(checkpoint, path, reader->manifest().state);
    resumed_ = reader->manifest().state;
    record_.init_from = resumed_.value("init_from", "");
    resumed_at_ = progress;
    origin_.checkpoint = path;
    if (record_.fingerprint) origin_.decay = other_decay(resumed_, *record_.fingerprint, progress.step);
    if (!origin_.decay.empty())
      log_info("continues from {} with another decay of the learning rate: {}", path, origin_.decay);
    if (changed) progress.stability.forget_losses();
    if (evaluates_other_data()) progress.validation = {};
    return progress;
  }
  if (paths.empty()) return std::nullopt;
  throw JobError(__FILE__, __LINE__,
                 fmt::format("none of {} in {} can be read; move them away to start from step 0, or name an older copy "
                             "with checkpoint.resume",
                             counted(paths.size(), "checkpoint"), checkpoint.directory));
}

void Resumer::resume_data(Loader& data) {
  std::string orders;
  together(session_, [&] {
    if (session_.rank() == 0)
      orders = to_cbor(orders_with(resumed_, resumed_at_.step, resumed_at_.sequences, *record_.fingerprint, data));
  });
  record_.orders = from_cbor(session_.broadcast_text(orders));
  together(session_, [&] { follow(record_.orders, data); });
  const bool is_new =
      resumed_.is_object() && resumed_.contains("orders") && resumed_.at("orders").size() < record_.orders.size();
  if (session_.rank() == 0 && is_new)
    for (const std::string& line : describe_change(record_.orders, data)) log_info("data.train: {}", line);
}

void Resumer::initialize_weights() {
  together(session_, [&] {
    check_names_base(config_);
    const WeightSource source = open_initial_weights(config_);
    if (source.grown_rows > 0 && session_.rank() == 0)
      log_info("{} added to the embedding of {}: each drawn with the mean and the deviation of the others",
               source.grown_rows == 1 ? "1 row is" : fmt::format("{} rows are", source.grown_rows),
               config_.checkpoint.init_from);
    Stream& s = trainer_.stream();
    trainer_.clear();
    const bool all = trainer_.plan().saves_frozen;
    read_shards(s, trainer_shards(trainer_, all ? Units::all : Units::frozen, true), *source.tensors, source.path);
    if (all) return;
    record_.base = {std::filesystem::absolute(source.path).lexically_normal().string(), ""};
    if (session_.rank() == 0) record_.base->fingerprint = weights_fingerprint(*source.tensors, source.model);
    if (config_.adapter.init_from.empty()) return trainer_.initialize_trained();
    const std::unique_ptr<TensorSource> adapters = open_adapters(config_.adapter.init_from, config_.model);
    read_shards(s, trainer_shards(trainer_, Units::trained, true), *adapters, config_.adapter.init_from);
  });
  trainer_.weights_loaded();
}

namespace {

// Returns the weights in checkpoint.init_from. Of a run folder these are the checkpoint that was the base, while it
// exists: the run may have continued since.
std::string base_in(const std::string& init_from, const std::string& recorded) {
  namespace fs = std::filesystem;
  const fs::path named = fs::absolute(init_from).lexically_normal();
  const fs::path found = fs::absolute(find_weights(init_from)).lexically_normal();
  std::error_code absent;
  const bool of_this_run = found != named && found.parent_path() == fs::path(recorded).parent_path();
  return of_this_run && fs::is_directory(recorded, absent) ? recorded : found.string();
}

}  // namespace

void Resumer::read_base(const CheckpointReader& reader) {
  if (trainer_.plan().saves_frozen) return;
  const std::string name = "checkpoint " + reader.folder();
  record_.base = base_of(reader.manifest(), reader.folder());
  CHECK(record_.base, "{} does not name a base", name);
  std::error_code absent;
  if (const std::string& here = config_.checkpoint.init_from; std::filesystem::is_directory(here, absent))
    record_.base->path = base_in(here, record_.base->path);
  const WeightSource source =
      session_.rank() == 0 ? open_base(name, *record_.base, record_.base->path) : open_weights(record_.base->path);
  check_same_model("the base " + record_.base->path, source.model, config_.model);
  read_shards(trainer_.stream(), trainer_shards(trainer_, Units::frozen, true), *source.tensors, source.path);
}

}  // namespace megalith
