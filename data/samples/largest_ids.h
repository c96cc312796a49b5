// The largest ids of prepare's token files, noted in prepared.json, so that a start need not read hundreds of
// gigabytes. A note is valid if the file has the noted size and was not modified after it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

constexpr const char* largest_ids_key = "largest_ids";

// Returns the note for the files `names` in a folder; `counts` are the id counts of the training files.
nlohmann::json largest_ids_in(const std::string& folder, const std::vector<std::string>& names,
                              const std::vector<int64_t>& training_counts);

// Returns the largest id of a token file from the prepared.json in its folder; nullopt if that has no valid note of it.
std::optional<int32_t> noted_largest_id(const std::string& file);

}  // namespace megalith
