#include "data/samples/prepared_note.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/system/check.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

std::optional<nlohmann::json> read_prepared_note(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code absent;
  const fs::path path = fs::path(folder) / prepared_note;
  if (!fs::exists(path, absent) || fs::exists(fs::path(folder) / "prepare.partial", absent)) return {};
  try {
    return parse_json(read_file(path.string()));
  } catch (const nlohmann::json::exception& error) {
    FAIL("{} is damaged: {}; nothing is overwritten, so remove the folder {} or write to another", path.string(),
         error.what(), folder);
  }
}

}  // namespace megalith
