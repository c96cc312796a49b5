// What decides the course of a run beyond rounding: tokenizer, data with its order, seeds, batch and schedule. A
// checkpoint keeps it (checkpoints/FORMAT.md, "course"), and a run that resumes from it is held against it: another
// layout or number of ranks is welcome, another course only on request, another tokenizer never.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/config.h"
#include "data/loader.h"
#include "data/tokenizer.h"

namespace megalith {

struct RunFingerprint {
  struct Source {
    std::string name;     // as data.train has it; not compared, files may move
    std::string content;  // of its files, see trainer/job/content.h
    int64_t share = 1;
    int64_t samples = 0;   // of an epoch
    int64_t left_out = 0;  // tokens of an epoch that fill no sample
  };
  std::string tokenizer;       // hash of its content; empty: none is known
  std::string tokenizer_name;  // its folder and size, for messages
  std::vector<Source> sources;
  std::map<std::string, std::string> settings;  // keys of the config that matter, and their values as TOML
};

// Reads the files of the sources. The tokenizer may be null.
RunFingerprint run_fingerprint(const Config& config, const Tokenizer* tokenizer, const Loader& data);

std::string hash_of(const Tokenizer& tokenizer);

nlohmann::json to_json(const RunFingerprint& fingerprint);
RunFingerprint run_fingerprint_from(const nlohmann::json& json);  // throws nlohmann's exceptions

// One line for each thing but the tokenizer that is another: what it was there, and what it is here.
std::vector<std::string> differences(const RunFingerprint& there, const RunFingerprint& here);

// Throws Error where a checkpoint of this state may not be resumed under this course: the tokenizer is another, or
// something else is and checkpoint.allow_changes is not set. `what` begins the message. Returns what the log should
// say.
std::vector<std::string> check_fingerprint(const std::string& what, const nlohmann::json& state,
                                           const RunFingerprint& here, const Config& config);

// The order of samples from some point of a run on; a checkpoint keeps all that its run had ("orders").
struct OrderRecord {
  int64_t step = 0, sample = 0;  // completed steps and samples trained on when it began
  std::vector<std::string> names;
  std::vector<int64_t> left_out{};  // tokens of each source; empty: not known
  SampleOrder order{{1}, Blend({1}), false, 0};
};
OrderRecord order_from(const nlohmann::json& json);

// The orders of a run, as its checkpoints keep them, that goes on from `state` (null: from the beginning) under this
// course.
nlohmann::json orders_with(const nlohmann::json& state, int64_t step, int64_t sample, const RunFingerprint& here);

}  // namespace megalith
