// A run starts from a checkpoint that it resumes, from given weights or from initial values. These functions find out
// which, and check that it may.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/reader.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {

// Checks that the checkpoints named by checkpoint.resume and checkpoint.init_from exist, are of this model and, if
// resumed, of this run fingerprint, and that no save will collide with an existing checkpoint. Opens manifests only.
// Called on one rank before anything is written.
void check_start(const Config& config, const RunFingerprint& fingerprint);

// Returns load_config's result, with keys of [model] that the config does not set taken from the weights of
// checkpoint.init_from or, if these are gone, from the run's newest checkpoint.
Config load_run_config(const std::string& toml_path, const std::vector<std::string>& overrides);

// Returns whether checkpoint.resume is best or a path, not auto or never.
bool names_a_checkpoint(const std::string& resume);
// Returns that checkpoint. Error if it does not exist.
std::string named_checkpoint(const CheckpointConfig& config);

// Throw Error: adapters without a base; weights of checkpoint.init_from that do not exist or are of another model; a
// checkpoint of another model.
void check_names_base(const Config& config);
WeightSource open_initial_weights(const Config& config);
void check_resumable(const std::string& path, const Manifest& manifest, const ModelConfig& here);

}  // namespace megalith
