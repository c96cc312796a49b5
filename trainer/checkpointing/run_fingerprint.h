// Defines the fingerprint of a run: everything that decides its results beyond rounding, which is tokenizer, data with
// its order, seeds, batch and schedule. A checkpoint keeps it (checkpoints/FORMAT.md, "course"), and a run that resumes
// is compared with it. Another layout or number of ranks is always accepted, other data or settings only on request,
// another tokenizer never.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/config.h"
#include "data/samples/loader.h"
#include "data/tokenizers/tokenizer.h"

namespace megalith {

struct RunFingerprint {
  struct Source {
    std::string name;     // not compared: files may move
    std::string content;  // a summary of its files (trainer/job/content.h)
    int64_t share = 1;
    int64_t samples = 0;   // per epoch
    int64_t left_out = 0;  // tokens per epoch that fill no sample
    int64_t tokens = 0;    // 0 if an older checkpoint does not have it
    bool masked = false;
    std::string tokens_hash{};  // hash_of_tokens() of all of them; empty: unknown
  };
  std::string tokenizer;       // a hash of its content; empty: unknown
  std::string tokenizer_name;  // folder and size, for messages
  std::vector<Source> sources;
  std::map<std::string, std::string> settings;  // keys of the config and their values as TOML
  std::map<std::string, std::string> told{};    // likewise, of changes that a resume reports without refusing
};

// Reads the files of the sources. `tokenizer` may be null; `validation` is the content of the validation data, or
// empty.
RunFingerprint run_fingerprint(const Config& config, const Tokenizer* tokenizer, const Loader& data,
                               const std::string& validation);

std::string hash_of(const Tokenizer& tokenizer);

// Returns a hash of the first tokens of a stream: of 256 evenly spaced blocks of 64 Ki tokens, which covers all of up
// to 16 Mi tokens. So a source that grew is recognised by its earlier tokens.
std::string hash_of_tokens(const TokenStream& stream, int64_t tokens);

// Returns the sources as JSON for a manifest.
nlohmann::json to_json(const std::vector<RunFingerprint::Source>& sources);
RunFingerprint::Source source_from(const nlohmann::json& json);  // throws nlohmann's exceptions

nlohmann::json to_json(const RunFingerprint& fingerprint);
RunFingerprint run_fingerprint_from(const nlohmann::json& json);  // throws nlohmann's exceptions

// Returns a line for each difference except that of the tokenizer, with both values. The learning rate's decay counts
// only if some of the `step` updates so far would have had another rate.
std::vector<std::string> differences(const RunFingerprint& there, const RunFingerprint& here, int64_t step);

// Returns the keys of the decay that differ but do not count, with both values; empty if there are none. So a run can
// be extended or cooled down from a checkpoint at its highest rate. Throws nlohmann's exceptions.
std::string other_decay(const nlohmann::json& state, const RunFingerprint& here, int64_t step);

// Returns a line for each change that a resume reports without refusing: other validation data, other types of the
// state.
std::vector<std::string> told_changes(const nlohmann::json& state, const RunFingerprint& here);

// Returns the content of the validation data with which a checkpoint's run evaluated; "" if unknown.
std::string validation_data_of(const nlohmann::json& state);

// Throws Error if a checkpoint of this state and step must not be resumed under this fingerprint: the tokenizers
// differ, or something else does and checkpoint.allow_changes is not set. `what` begins the message. Returns lines for
// the log.
std::vector<std::string> check_fingerprint(const std::string& what, const nlohmann::json& state, int64_t step,
                                           const RunFingerprint& here, const Config& config);

}  // namespace megalith
