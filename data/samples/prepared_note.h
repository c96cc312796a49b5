// The note that `megalith prepare` leaves in the folder of its token files: its settings, and the largest id of each
// file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace megalith {

inline constexpr const char* prepared_note = "prepared.json";

// Returns the note in a folder if the last prepare there is complete. Error: the note is damaged.
std::optional<nlohmann::json> read_prepared_note(const std::string& folder);

}  // namespace megalith
