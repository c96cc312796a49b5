// The largest ids of the token files that prepare has made, in its prepared.json: a start need not read hundreds of
// gigabytes for them. They hold for as long as a file has the size that it had and was not written after the note was.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

constexpr const char* largest_ids_key = "largest_ids";

// Returns what prepare notes of its files in a folder, by name; `counts` are those of the ids of the training files.
nlohmann::json largest_ids_in(const std::string& folder, const std::vector<std::string>& names,
                              const std::vector<int64_t>& training_counts);

// The largest id of a token file, as the prepared.json beside it says; nothing where none does, or the file is another.
std::optional<int32_t> noted_largest_id(const std::string& file);

}  // namespace megalith
