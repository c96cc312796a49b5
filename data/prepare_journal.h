// What prepare notes in its folder, as JSON: what it prepares, how far it is, what it has made.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/prepare.h"
#include "data/text_batches.h"
#include "data/token_shards.h"

namespace megalith {

// How far the files are: after a batch.
struct PreparePosition {
  TextPosition text;
  TokenShards::Mark train, validation;
  bool in_bad_document = false;  // whose further parts are left out as well
  int64_t bad_documents = 0;
  std::string first_bad;

  bool operator==(const PreparePosition&) const = default;
};

nlohmann::json to_json(const PreparePosition& position);
PreparePosition position_from(const nlohmann::json& json);

// All that decides what is made, and the inputs as they are now.
nlohmann::json made_of(const PrepareOptions& options, const std::vector<TextInput>& inputs);
// What differs between two of them, in words; empty if nothing does.
std::string difference_of(const nlohmann::json& before, const nlohmann::json& now);

// The rule by which text is held out of a corpus, which takes long to find.
nlohmann::json held_out_of(const Corpus& corpus);
Corpus corpus_from(const nlohmann::json& held_out, const CorpusOptions& options, std::vector<TextInput> inputs);

nlohmann::json to_json(const PrepareReport& report);
PrepareReport report_from(const nlohmann::json& json);

}  // namespace megalith
