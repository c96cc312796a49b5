#include "data/samples/path_pattern.h"

#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/system/counted.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

namespace {

namespace fs = std::filesystem;

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

// Returns the offset of the first component **, or npos.
size_t any_folders_in(const std::string& pattern) {
  for (size_t at = pattern.find("**"); at != std::string::npos; at = pattern.find("**", at + 2)) {
    const bool begins = at == 0 || pattern[at - 1] == '/', ends = at + 2 == pattern.size() || pattern[at + 2] == '/';
    CHECK(begins && ends,
          "the pattern {} has ** next to other characters; ** must be alone between slashes, as in a/**/*.txt",
          pattern);
    return at;
  }
  return std::string::npos;
}

// Returns a folder and all folders below it, without hidden and linked ones; adds the linked ones to `linked`.
std::vector<std::string> folders_from(const std::string& top, std::set<std::string>& linked) {
  std::vector<std::string> folders{top};
  std::error_code error;
  fs::recursive_directory_iterator entry(top, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with(".")) {
      entry.disable_recursion_pending();
    } else if (std::error_code unknown; entry->is_directory(unknown)) {
      if (entry->is_symlink(unknown))
        linked.insert(entry->path().lexically_normal().string());
      else
        folders.push_back(entry->path().string());
    }
  }
  CHECK(!error, "cannot search the folder {}: {}; check its permissions", top, error.message());
  return folders;
}

// Adds the files that match a pattern with **.
void add_files_below(const std::string& pattern, size_t any, std::set<std::string>& files,
                     std::set<std::string>& linked) {
  const std::string above = pattern.substr(0, any);
  const size_t rest_at = pattern.find_first_not_of('/', any + 2);
  const std::string rest = rest_at == std::string::npos ? "*" : pattern.substr(rest_at);
  for (const std::string& top : above.empty() ? std::vector<std::string>{"."} : matches(above)) {
    std::error_code absent;
    if (!fs::is_directory(top, absent)) continue;
    for (const std::string& folder : folders_from(top, linked)) {
      const std::string begin = above.empty() && folder == "." ? "" : as_pattern(folder) + "/";
      const std::string below = (begin.starts_with("./") && above.empty() ? begin.substr(2) : begin) + rest;
      if (const size_t next = any_folders_in(below); next != std::string::npos) {
        add_files_below(below, next, files, linked);
        continue;
      }
      for (const std::string& path : matches(below))
        if (!fs::is_directory(path, absent)) files.insert(fs::path(path).lexically_normal().string());
    }
  }
}

}  // namespace

std::string as_pattern(const std::string& path) {
  std::string out;
  for (const char c : path) out += std::string(c == '*' || c == '?' || c == '[' || c == '\\' ? 1 : 0, '\\') + c;
  return out;
}

std::string to_text(const LeftOut& left_out) {
  static const std::map<std::string, std::string> plurals{{"file with another ending", "files with other endings"},
                                                          {"index without tokens", "indexes without tokens"},
                                                          {"link without target", "links without targets"},
                                                          {"pipe or device", "pipes or devices"}};
  std::vector<std::string> parts;
  for (const auto& [kind, count] : left_out) {
    const auto plural = plurals.find(kind);
    parts.push_back(counted(count, kind, plural != plurals.end() ? plural->second : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> paths_matching(const std::string& pattern, LeftOut* left_out) {
  std::vector<std::string> paths;
  if (const size_t any = any_folders_in(pattern); any != std::string::npos) {
    std::set<std::string> files, linked;
    add_files_below(pattern, any, files, linked);
    if (left_out && !linked.empty()) (*left_out)["linked folder"] += std::ssize(linked);
    paths.assign(files.begin(), files.end());
  } else {
    paths = matches(pattern);
    std::sort(paths.begin(), paths.end());
  }
  for (const std::string& path : paths) check_path(path);
  return paths;
}

void check_path(const std::string& path) {
  check_is_path(path);
  CHECK(path.find_first_of(std::string("\0\n\r", 3)) == std::string::npos, "the path {} has a line break; rename it",
        json_text_of_bytes(nlohmann::ordered_json(path)));
}

}  // namespace megalith
