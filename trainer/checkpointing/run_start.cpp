#include "trainer/checkpointing/run_start.h"

#include <algorithm>
#include <filesystem>

#include "checkpoints/store.h"
#include "kernels/system/counted.h"
#include "trainer/checkpointing/average.h"
#include "trainer/checkpointing/grown_weights.h"

namespace megalith {

namespace {

void check_names_folder(const std::string& init_from) {
  CHECK(may_have_weights(init_from),
        "checkpoint.init_from = {} is not a folder; name a checkpoint, a run folder or a Hugging Face checkpoint",
        init_from);
}

// Refuses a start from the beginning if there are checkpoints that were complete once: it would bury that work.
void check_none_was_complete(const std::string& directory, const std::vector<SkippedCheckpoint>& skipped) {
  const auto newest = std::ranges::find_if(skipped, &SkippedCheckpoint::published);
  CHECK(newest == skipped.end(),
        "none of {} in {} is complete and finite; the newest: {}. Repair it or, to start from step 0, move them away "
        "or set checkpoint.resume = never",
        counted(std::ranges::count_if(skipped, &SkippedCheckpoint::published), "checkpoint"), directory,
        newest->reason);
}

}  // namespace

void check_names_base(const Config& config) {
  CHECK(!config.adapter.in_use() || !config.checkpoint.init_from.empty(),
        "adapter.rank = {}: adapters need the weights of a trained model, but checkpoint.init_from is empty; name a "
        "Hugging Face checkpoint, a run or a checkpoint there",
        config.adapter.rank);
}

WeightSource open_initial_weights(const Config& config) {
  const std::string& path = config.checkpoint.init_from;
  check_names_folder(path);
  WeightSource source = open_weights(path);
  ModelConfig grown = source.model;
  for (const auto& [key, size] : {std::pair("vocab", &ModelConfig::vocab), {"context", &ModelConfig::context}})
    if (may_grow(key, source.model, config.model)) grown.*size = config.model.*size;
  check_same_model("checkpoint.init_from = " + path, grown, config.model);
  if (const int64_t more = grown.vocab - source.model.vocab; more > 0) {
    CHECK(!config.adapter.in_use(),
          "model.vocab = {} adds {} to the embedding of {}, which adapters do not change, so they would not be "
          "trained; train all weights first",
          grown.vocab, counted(more, "row"), path);
    source.tensors =
        std::make_unique<GrownSource>(std::move(source.tensors), grown.vocab, static_cast<uint64_t>(config.train.seed));
  }
  source.grown_rows = grown.vocab - source.model.vocab;
  source.model = grown;
  return source;
}

void check_resumable(const std::string& path, const Manifest& manifest, const ModelConfig& here) {
  check_same_model("checkpoint " + path, model_of(manifest, path), here);
  CHECK(!manifest.state.contains(averaged_key),
        "checkpoint {} is an average of others, without the state of an optimizer, so no run resumes from it; begin a "
        "run with its weights: checkpoint.init_from = {}",
        path, path);
}

bool names_a_checkpoint(const std::string& resume) { return resume != "auto" && resume != "never"; }

std::string named_checkpoint(const CheckpointConfig& config) {
  return find_checkpoint(config.resume == "best" ? config.directory + "/best" : config.resume);
}

void check_start(const Config& config, const RunFingerprint& fingerprint) {
  const auto check = [&](const std::string& path, const Manifest& manifest) {
    check_resumable(path, manifest, config.model);
    check_fingerprint("checkpoint " + path, manifest.state, manifest.step, fingerprint, config);
  };
  check_names_base(config);
  const CheckpointConfig& checkpoint = config.checkpoint;
  const CheckpointListing listing = CheckpointStore(checkpoint).list();
  const std::string newest = listing.complete.empty() ? "" : listing.complete.front();
  CHECK(checkpoint.resume != "never" || newest.empty(),
        "checkpoint.resume = never, but {} holds {}, the newest {}; use another run.output, or resume = auto",
        checkpoint.directory, counted(listing.complete.size(), "checkpoint"), newest);
  if (names_a_checkpoint(checkpoint.resume)) {
    const std::string named = named_checkpoint(checkpoint);
    const Manifest manifest = CheckpointReader(named).manifest();
    check(named, manifest);
    if (newest.empty()) return;
    const int64_t last = CheckpointReader(newest).manifest().step;
    CHECK(last <= manifest.step,
          "checkpoint.resume = {} is of step {}, but {} continues to step {} and nothing is overwritten; use another "
          "run.output, move the newer ones away, or resume = auto",
          named, manifest.step, checkpoint.directory, last);
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
  const CheckpointConfig paths = load_places(toml_path, overrides).checkpoint;
  if (paths.init_from.empty()) return load_config(toml_path, overrides);
  std::string weights = paths.init_from;
  if (!may_have_weights(weights)) {
    const std::vector<std::string> saved = CheckpointStore(paths).usable();
    if (names_a_checkpoint(paths.resume))
      weights = named_checkpoint(paths);
    else if (!saved.empty())
      weights = saved.front();
    check_names_folder(weights);
  }
  const WeightSource source = open_weights(weights);
  return load_config(toml_path, overrides, {"checkpoint.init_from = " + weights, source.model, source.dropout});
}

}  // namespace megalith
