#include "checkpoints/safetensors_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "kernels/system/counted.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr const char* single_file = "/model.safetensors";
constexpr const char* index_file = "/model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code absent;
  return fs::exists(path, absent);
}

}  // namespace

std::vector<std::string> weight_files(const std::string& folder) {
  // Token files end in .bin as well.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> formats = {{{"", ".safetensors"},
                                                                                            {"pytorch_model", ".bin"},
                                                                                            {"tf_model", ".h5"},
                                                                                            {"flax_model", ".msgpack"},
                                                                                            {"consolidated", ".pth"},
                                                                                            {"", ".gguf"}}};
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (std::any_of(formats.begin(), formats.end(), [&](const auto& format) {
          return name.starts_with(format.first) && name.ends_with(format.second);
        }))
      found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool has_safetensors(const std::string& folder) { return exists(folder + single_file) || exists(folder + index_file); }

std::map<std::string, std::string> safetensors_index(std::string_view text, const std::string& path) {
  std::map<std::string, std::string> file_of;
  try {
    const nlohmann::json index = parse_json(text);
    CHECK(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          "{} has no weight_map, which maps tensors to files; copy it again", path);
    for (const auto& [name, file] : index["weight_map"].items()) {
      CHECK(file.is_string(), "{}: the file of {} is {}", path, name, json_text(file));
      const auto in_folder = file.get<std::string>();
      CHECK(!in_folder.empty() && in_folder.find('/') == std::string::npos &&
                in_folder.find('\0') == std::string::npos && in_folder != "." && in_folder != "..",
            "{}: {} is in {}, which is not a file of its folder", path, name, json_text(file));
      file_of.emplace(name, in_folder);
    }
  } catch (const nlohmann::json::exception& e) {
    FAIL("{} is not the JSON of an index: {}; copy it again", path, e.what());
  }
  CHECK(!file_of.empty(), "{} lists no tensors; copy it again", path);
  return file_of;
}

SafeTensorsFolder::SafeTensorsFolder(const std::string& folder) {
  if (exists(folder + single_file)) {
    path_ = folder + single_file;
    open(path_);
    return;
  }
  if (exists(folder + index_file)) {
    path_ = folder + index_file;
    open_listed(folder);
    return;
  }
  const std::vector<std::string> others = weight_files(folder);
  const auto is_safe = [](const std::string& name) { return name.ends_with(".safetensors"); };
  CHECK(std::none_of(others.begin(), others.end(), is_safe),
        "{} has neither model.safetensors nor model.safetensors.index.json, which lists several files; it has {}: "
        "rename it if it is the whole model, or copy the missing files",
        folder, fmt::join(others, ", "));
  FAIL(
      "{}{} is missing{}; write it on a machine with transformers: python3 -c \"from transformers import "
      "AutoModelForCausalLM as A; A.from_pretrained('{}').save_pretrained('{}', safe_serialization=True)\"",
      folder, single_file,
      others.empty() ? "" : fmt::format(", and megalith does not read {}", fmt::join(others, ", ")), folder, folder);
}

void SafeTensorsFolder::open(const std::string& path) {
  const SafeTensors* file = opened_.emplace_back(std::make_unique<SafeTensors>(path)).get();
  for (const auto& [name, entry] : file->entries()) {
    const auto [known, is_new] = file_of_.emplace(name, file);
    CHECK(is_new, "tensor {} is in {} and in {}", name, known->second->path(), path);
  }
}

void SafeTensorsFolder::open_listed(const std::string& folder) {
  const std::map<std::string, std::string> listed = safetensors_index(read_file(path_), path_);
  std::map<std::string, int64_t> tensors_of;
  for (const auto& [name, file] : listed) tensors_of[file]++;
  std::vector<std::string> missing;
  for (const auto& [file, tensors] : tensors_of)
    if (!exists(folder + "/" + file)) missing.push_back(fmt::format("{} ({})", file, counted(tensors, "tensor")));
  CHECK(missing.empty(), "{}: of the {} files that model.safetensors.index.json lists, {} missing: {}; copy them",
        folder, tensors_of.size(), missing.size() == 1 ? "1 is" : fmt::format("{} are", missing.size()),
        fmt::join(missing, ", "));
  for (const auto& [file, tensors] : tensors_of) open(folder + "/" + file);
  for (const auto& [name, file] : listed) {
    const auto found = file_of_.find(name);
    CHECK(found != file_of_.end() && found->second->path() == folder + "/" + file,
          "{} lists {} in {}, but it is {}; the files do not belong together: copy all of them again", path_, name,
          file, found == file_of_.end() ? "in none of them" : "in " + found->second->path());
  }
  for (const auto& [name, file] : file_of_)
    CHECK(listed.contains(name),
          "{} has {}, which {} does not list; the files do not belong together: copy all of them again", file->path(),
          name, path_);
}

const SafeTensors& SafeTensorsFolder::file(const std::string& name) const {
  const auto found = file_of_.find(name);
  CHECK(found != file_of_.end(), "{} has no tensor {}", path_, name);
  return *found->second;
}

}  // namespace megalith
