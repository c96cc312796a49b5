#include "data/samples/largest_ids.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/samples/prepared_note.h"
#include "data/samples/token_stream.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace fs = std::filesystem;

nlohmann::json largest_ids_in(const std::string& folder, const std::vector<std::string>& names,
                              const std::vector<int64_t>& training_counts) {
  int64_t in_training = std::ssize(training_counts) - 1;
  while (in_training > 0 && training_counts[static_cast<size_t>(in_training)] == 0) in_training--;
  nlohmann::json noted = nlohmann::json::object();
  for (const std::string& name : names) {
    if (!name.ends_with(".bin")) continue;
    const fs::path file = fs::path(folder) / name;
    const bool is_validation = name.starts_with("validation");
    const TokenStream stream = TokenStream::open(file.string());
    const int64_t largest = !is_validation ? in_training : stream.size() > 0 ? stream.max_token(0, stream.size()) : 0;
    noted[name] = {{"bytes", fs::file_size(file)}, {"largest", largest}};
  }
  return noted;
}

std::optional<int32_t> noted_largest_id(const std::string& file) try {
  const fs::path path = file, note = path.parent_path() / prepared_note;
  if (std::error_code absent; !fs::exists(note, absent)) return {};
  const nlohmann::json all = parse_json(read_file(note.string()));
  const nlohmann::json& noted = all.at(largest_ids_key).at(path.filename().string());
  const bool same = whole_number(noted.at("bytes")) == static_cast<int64_t>(fs::file_size(path)) &&
                    fs::last_write_time(path) <= fs::last_write_time(note);
  if (!same) return {};
  return static_cast<int32_t>(whole_number(noted.at("largest"), 0));
} catch (const std::exception&) {  // the caller then reads the file
  return {};
}

}  // namespace megalith
