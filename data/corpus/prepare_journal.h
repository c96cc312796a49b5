// prepare's notes in its folder, as JSON: what it prepares, its position, and its result.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/corpus/prepare.h"
#include "data/corpus/text_batches.h"
#include "data/samples/token_shards.h"

namespace megalith {

// The position after a batch.
struct PreparePosition {
  TextPosition text;
  TokenShards::Mark train, validation;
  bool in_bad_document = false;  // the document's further parts are left out too
  int64_t bad_documents = 0;
  std::string first_bad;
  ExampleCounts examples = {};  // counts of conversations

  bool operator==(const PreparePosition&) const = default;
};

nlohmann::json to_json(const PreparePosition& position);
PreparePosition position_from(const nlohmann::json& json);

// Returns everything that determines the output, and the inputs as they are now.
nlohmann::json made_of(const PrepareOptions& options, const std::vector<TextInput>& inputs, const ChatTemplate* chat);
// Returns the differences between two of them, in words, or "".
std::string difference_of(const nlohmann::json& before, const nlohmann::json& now);

// The first note. It keeps the rule of the validation set, which takes long to compute.
struct PrepareBegun {
  nlohmann::json of = nlohmann::json::object();  // the result of made_of
  ValidationSplit::Rule rule = ValidationSplit::Rule::nothing;
  DocumentSizes sizes;
};
nlohmann::json to_json(const PrepareBegun& begun);
PrepareBegun begun_from(const nlohmann::json& json);

// The last note.
struct PrepareMade {
  std::vector<std::string> names;
  PrepareReport report;
};
nlohmann::json to_json(const PrepareMade& made);
PrepareMade made_from(const nlohmann::json& json);

// The note that stays with the files of a complete prepare.
struct Prepared {
  nlohmann::json of = nlohmann::json::object();  // the result of made_of
  PrepareMade made;
};
nlohmann::json to_json(const Prepared& prepared);
Prepared prepared_from(const nlohmann::json& json);

}  // namespace megalith
