// A run starts from a checkpoint that it resumes, from given weights or from nothing. This finds which, and checks that
// it may.
#pragma once

#include <string>
#include <vector>

#include "checkpoints/reader.h"
#include "trainer/checkpointing/run_fingerprint.h"
#include "trainer/checkpointing/weight_source.h"

namespace megalith {

// Checks that the checkpoints which checkpoint.resume and checkpoint.init_from name exist, are of this model and, where
// resumed, of this run fingerprint, and that no save will collide with an existing checkpoint. Opens manifests only.
// Called on one rank before anything is written.
void check_start(const Config& config, const RunFingerprint& fingerprint);

// Returns load_config's result, where the weights of checkpoint.init_from set the keys of [model] that the config does
// not. Where these weights are gone, the run's newest checkpoint does.
Config load_run_config(const std::string& toml_path, const std::vector<std::string>& overrides);

// Returns whether checkpoint.resume is a path, and neither auto nor never.
bool names_a_checkpoint(const std::string& resume);

// These throw Error: adapters without a base; weights of checkpoint.init_from that are not there or of another model; a
// checkpoint of another model.
void check_names_base(const Config& config);
WeightSource open_initial_weights(const Config& config);
void check_resumable(const std::string& path, const Manifest& manifest, const ModelConfig& here);

}  // namespace megalith
