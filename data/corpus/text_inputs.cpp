#include "data/corpus/text_inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "data/samples/known_files.h"
#include "data/samples/path_pattern.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

std::string_view without_compression(std::string_view path) {
  path.remove_suffix(compression_in_name(path).size());
  return path;
}

bool names_json_lines(std::string_view path) {
  path = without_compression(path);
  return path.ends_with(".jsonl") || path.ends_with(".json") || path.ends_with(".ndjson");
}

bool names_text(std::string_view path) { return names_json_lines(path) || without_compression(path).ends_with(".txt"); }

TextInput input_at(const std::string& path, bool pipes_are_json) {
  if (path == "-") return {.path = path, .json_lines = pipes_are_json, .is_plain = false};
  struct stat info {};
  CHECK(::stat(path.c_str(), &info) == 0, "cannot open the text {}: {}; check the path and its permissions", path,
        std::strerror(errno));
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode) || S_ISSOCK(info.st_mode))
    return {.path = path, .json_lines = pipes_are_json || names_json_lines(path), .is_plain = false};
  CHECK(S_ISREG(info.st_mode), "{} is not a plain file", path);
  return {.path = path,
          .json_lines = names_json_lines(path),
          .size = info.st_size,
          .modified = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// Returns why an entry of a folder is not one of its texts, or "" for a text or a folder to search.
std::string why_left_out(const fs::directory_entry& entry) {
  std::error_code unknown;
  if (entry.path().filename().string().starts_with(".")) return "hidden file";
  const fs::file_status what = entry.status(unknown);
  if (what.type() == fs::file_type::directory) return entry.is_symlink(unknown) ? "linked folder" : "";
  if (what.type() == fs::file_type::not_found) return "link without target";
  if (what.type() != fs::file_type::regular) return "pipe or device";
  if (!names_text(entry.path().string())) return "file with another ending";
  return entry.file_size(unknown) > 0 ? "" : "empty file";
}

std::vector<std::string> texts_below(const std::string& folder, LeftOut& left_out) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string why = why_left_out(*entry);
    if (!why.empty()) {
      left_out[why]++;
      entry.disable_recursion_pending();
    } else if (std::error_code unknown; !entry->is_directory(unknown)) {
      paths.push_back(entry->path().string());
    }
  }
  CHECK(!error, "cannot search the folder {}: {}; check its permissions", folder, error.message());
  CHECK(!paths.empty(),
        "the folder {} has no text (.txt, .jsonl, .ndjson or .json, optionally followed by .gz, .zst or .xz){}; name "
        "the files themselves",
        folder, left_out.empty() ? "" : ", but " + to_text(left_out));
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<TextInput> find_texts(const std::vector<std::string>& names, bool pipes_are_json, LeftOut* left_out) {
  LeftOut ignored;
  std::vector<TextInput> inputs;
  std::set<std::string> known;
  const auto take = [&](const std::string& path) {
    check_path(path);
    const TextInput& input = inputs.emplace_back(input_at(path, pipes_are_json));
    CHECK(!input.is_plain || input.size > 0, "the text {} is empty (0 bytes); leave it out", path);
    CHECK(known.insert(path == "-" ? path : fs::path(path).lexically_normal().string()).second,
          "the text {} is named twice, and would be trained on twice; name it once", path);
  };
  const auto take_all = [&](const std::string& path) {
    std::error_code absent;
    if (!fs::is_directory(path, absent)) return take(path);
    for (const std::string& below : texts_below(path, left_out ? *left_out : ignored)) take(below);
  };
  for (const std::string& name : names) {
    const std::string_view scheme = scheme_of(name);
    CHECK(scheme.empty(),
          "{} is not a path, and {}:// is not supported; pipe it, as in {} | megalith prepare --text - "
          "...",
          name, scheme,
          scheme == "s3"   ? fmt::format("aws s3 cp {} -", name)
          : scheme == "gs" ? fmt::format("gsutil cat {}", name)
                           : fmt::format("curl -sL {}", name));
    std::error_code absent;
    if (name == "-" || fs::exists(name, absent) || !is_pattern(name)) {
      take_all(name);
      continue;
    }
    const std::vector<std::string> paths = paths_matching(name, left_out);
    CHECK(!paths.empty(), "no file matches {}; check the pattern", name);
    for (const std::string& path : paths) take_all(path);
  }
  return inputs;
}

void check_unchanged(const TextInput& input) {
  if (!input.is_plain) return;
  TextInput now = input_at(input.path, false);
  now.json_lines = input.json_lines;
  CHECK(now == input,
        "{} changed while it was read: it had {} bytes and has {}; prepare again when no process writes to it any more",
        input.path, input.size, now.size);
}

}  // namespace megalith
