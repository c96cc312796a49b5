#include "trainer/step/checked_tokens.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

CheckedTokens::CheckedTokens(const std::string& path) {
  if (std::error_code absent; !std::filesystem::exists(path, absent)) return;
  try {
    std::map<std::string, File> files;
    const nlohmann::json all = parse_json(read_file(path));
    for (const auto& [name, file] : as_object(all).items())
      files[name] = {whole_number(file.at("bytes")), whole_number(file.at("time")), whole_number(file.at("below"))};
    files_ = std::move(files);
  } catch (const std::exception&) {
    // The files are then read again.
  }
}

CheckedTokens::File CheckedTokens::look_at(const std::string& file) {
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(file, absent);
  const auto time = absent ? std::filesystem::file_time_type{} : std::filesystem::last_write_time(file, absent);
  if (absent) return {.bytes = -1};
  return {.bytes = static_cast<int64_t>(bytes), .time = time.time_since_epoch().count()};
}

bool CheckedTokens::below(const std::vector<std::string>& files, int64_t vocab) const {
  return std::ranges::all_of(files, [&](const std::string& name) {
    const auto known = files_.find(std::filesystem::absolute(name).lexically_normal().string());
    if (known == files_.end() || known->second.below > vocab) return false;
    const File now = look_at(name);
    return now.bytes == known->second.bytes && now.time == known->second.time;
  });
}

void CheckedTokens::add(const std::vector<std::string>& files, int64_t vocab) {
  if (below(files, vocab)) return;
  for (const std::string& name : files) {
    File now = look_at(name);
    now.below = vocab;
    if (now.bytes >= 0) files_[std::filesystem::absolute(name).lexically_normal().string()] = now;
  }
}

void CheckedTokens::write(const std::string& path) const {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& [name, file] : files_)
    all[name] = {{"bytes", file.bytes}, {"time", file.time}, {"below", file.below}};
  const std::string text = json_text_of_bytes(all) + "\n";
  std::error_code absent;
  if (std::filesystem::exists(path, absent) && read_file(path) == text) return;
  write_file(path, text, {.replace = true});
}

}  // namespace megalith
