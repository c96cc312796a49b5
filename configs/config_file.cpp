#include "configs/config_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "configs/field_table.h"
#include "kernels/system/check.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

constexpr const char* kept_name = "config.toml";

bool is_there(const fs::path& path) {
  std::error_code absent;
  return fs::exists(path, absent);
}

bool holds_checkpoints(const fs::path& directory) {
  std::error_code absent;
  for (fs::directory_iterator at(directory, absent), end; !absent && at != end; at.increment(absent))
    if (at->path().filename().string().starts_with("step-")) return true;
  return false;
}

// Every run begins with a lock and a log. A copy may lack both, but not its checkpoints, wherever they are.
bool is_run_folder(const fs::path& folder, const Config& read) {
  if (is_there(folder / "lock") && is_there(folder / "log.txt")) return true;
  return read.checkpoint.directory.empty() && holds_checkpoints(folder / "checkpoints");
}

// Returns the folder of config.toml; "" if `path` is another file.
std::string folder_of(const std::string& path) {
  const fs::path file = config_file(path);
  if (file.filename() != kept_name) return "";
  return file.has_parent_path() ? file.parent_path().string() : ".";
}

bool is_same_place(const std::string& a, const std::string& b) {
  std::error_code absent;
  return fs::equivalent(a, b, absent) || fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal();
}

// Returns whether it may be the name of a recipe: neither a path nor a file's name.
bool is_name(const std::string& path) {
  return !path.empty() && fs::path(path).extension() != ".toml" && path.find('/') == std::string::npos;
}

std::string recipe(const std::string& name) {
  const fs::path file = recipe_folder() / (name + ".toml");
  if (is_there(file)) return file.string();
  const std::vector<std::string> known = recipe_names();
  FAIL("cannot read configuration {}: there is no such file, folder or recipe{}", name,
       known.empty() ? fmt::format(", and no recipe in {}", recipe_folder().string())
                     : fmt::format("; the recipes are {}", fmt::join(known, " ")));
}

// Moves a path, a pattern or a weighted source from below `from` to below `to`, unless it still exists below `from`.
std::string moved(const std::string& text, const std::string& from, const std::string& to) {
  const std::string below = from + "/";
  if (!text.starts_with(below)) return text;
  const std::string there = to + "/" + text.substr(below.size());
  const auto folder = [](const std::string& of) {
    return fs::path(of.substr(0, of.find_first_of("*?["))).parent_path();
  };
  return is_there(folder(text)) && !is_there(folder(there)) ? text : there;
}

}  // namespace

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  std::error_code absent;
  for (fs::directory_iterator at(recipe_folder(), absent), end; !absent && at != end; at.increment(absent))
    if (at->path().extension() == ".toml") names.push_back(at->path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

fs::path recipe_folder() {
  std::error_code absent;
  return fs::read_symlink("/proc/self/exe", absent).parent_path().parent_path() / "share/megalith/configs";
}

std::string config_file(const std::string& path) {
  std::error_code absent;
  if (!is_there(path) && is_name(path)) return recipe(path);
  if (!fs::is_directory(path, absent)) return path;
  const std::string file = (fs::path(path) / kept_name).string();
  CHECK(is_there(file), "cannot read configuration {}: it is a folder without {}; name a run folder or a TOML file",
        path, kept_name);
  return file;
}

std::vector<std::string> meant_by_place(const std::string& path, const Config& read) {
  const std::string here = folder_of(path), from = read.run.output;
  if (here.empty() || is_same_place(here, from) || !is_run_folder(here, read)) return {};
  std::vector<std::string> overrides;
  for (const Field& field : field_table()) {
    if (field.kind != Key::Kind::text) continue;
    const Value value = field.get(read);
    Value now = value;
    if (auto* text = std::get_if<std::string>(&now))
      *text = field.name() == "run.output" ? here : moved(*text, from, here);
    if (auto* words = std::get_if<Words>(&now))
      for (std::string& word : *words) word = moved(word, from, here);
    if (now != value) overrides.push_back(field.name() + "=" + toml_text(now));
  }
  return overrides;
}

void check_run_folder(const std::string& path, const Config& read) {
  std::error_code absent;
  if (!fs::is_directory(path, absent)) return;
  CHECK(is_run_folder(path, read),
        "{} is not a run folder: its {} comes without log.txt, lock and checkpoints/; to train with that file, name "
        "the file",
        path, kept_name);
}

}  // namespace megalith
