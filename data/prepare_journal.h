// What prepare notes in its folder, as JSON: what it prepares, how far it is, what it has made.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

// What a prepare notes first. The rule by which text is held out of a corpus takes long to find.
struct PrepareBegun {
  nlohmann::json of = nlohmann::json::object();  // made_of
  HoldOut::Rule rule = HoldOut::Rule::nothing;
  DocumentSizes sizes;
};
nlohmann::json to_json(const PrepareBegun& begun);
PrepareBegun begun_from(const nlohmann::json& json);

// And last.
struct PrepareMade {
  std::vector<std::string> names;
  PrepareReport report;
};
nlohmann::json to_json(const PrepareMade& made);
PrepareMade made_from(const nlohmann::json& json);

// The note that stays beside the files when a prepare has ended.
struct Prepared {
  nlohmann::json of = nlohmann::json::object();  // made_of
  PrepareMade made;
};
nlohmann::json to_json(const Prepared& prepared);
Prepared prepared_from(const nlohmann::json& json);

}  // namespace megalith
