#include "checkpoints/store.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "checkpoints/manifest.h"
#include "kernels/system/files.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

constexpr const char* suspect_suffix = ".suspect-";

// Returns the number in PREFIXstep-00000100SUFFIX.
std::optional<int64_t> step_in(const std::string& name, const std::string& before, const std::string& after) {
  const std::string head = before + "step-";
  if (!name.starts_with(head) || !name.ends_with(after) || name.size() < head.size() + after.size()) return {};
  const std::string digits = name.substr(head.size(), name.size() - head.size() - after.size());
  const bool number = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number || digits.size() < 8 || digits.size() > 18) return {};
  return std::stoll(digits);
}

struct Entry {
  int64_t step;
  std::string path;
  bool operator<(const Entry& other) const { return step > other.step; }  // newest first
};

struct Entries {
  std::vector<Entry> published, unfinished, removed, suspects;
};

Entries entries_of(const std::string& directory) {
  Entries entries;
  std::error_code error;
  if (!fs::exists(directory, error) && !error) return entries;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string(), path = directory + "/" + name;
    if (const auto published = step_in(name, "", "")) entries.published.push_back({*published, path});
    if (const auto unfinished = step_in(name, ".", ".partial")) entries.unfinished.push_back({*unfinished, path});
    if (const auto removed = step_in(name, ".", ".removed")) entries.removed.push_back({*removed, path});
    if (const size_t dot = name.rfind(suspect_suffix); dot != std::string::npos)
      if (const auto aside = step_in(name.substr(0, dot), "", "")) entries.suspects.push_back({*aside, path});
  }
  CHECK(!error, "cannot list the checkpoints in {}: {}", directory, error.message());
  std::sort(entries.published.begin(), entries.published.end());
  std::sort(entries.unfinished.begin(), entries.unfinished.end());
  return entries;
}

}  // namespace

std::optional<int64_t> step_of_folder(const std::string& folder) {
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "step-00000100/"
  return step_in(path.filename().string(), "", "");
}

namespace {
// CorruptFile unless the checkpoint is complete.
Manifest complete_manifest(const std::string& folder) {
  Manifest manifest = read_manifest(folder);
  check_files(folder, manifest);
  return manifest;
}
}  // namespace

std::string why_of_no_use(const std::string& folder) {
  try {
    const std::string values = what_is_not_finite(complete_manifest(folder));
    return values.empty() ? "" : fmt::format("{} holds {}", folder, values);
  } catch (const CorruptFile& e) {
    return e.what();
  }
}

CheckpointListing CheckpointStore::list() const {
  CheckpointListing listing;
  const Entries entries = entries_of(directory_);
  for (const Entry& e : entries.published) {
    const std::string reason = why_of_no_use(e.path);
    if (reason.empty())
      listing.complete.push_back(e.path);
    else
      listing.skipped.push_back({e.path, reason, true});
  }
  for (const Entry& e : entries.unfinished)
    listing.skipped.push_back({e.path, e.path + " was begun and never finished", false});
  return listing;
}

std::string set_aside(const std::string& folder, Aside as) {
  const std::string stem = folder + (as == Aside::damaged ? ".damaged-" : suspect_suffix);
  std::error_code ignored;
  int k = 1;
  while (fs::exists(fmt::format("{}{}", stem, k), ignored)) k++;
  std::string aside = fmt::format("{}{}", stem, k);
  move_file(folder, aside);
  return aside;
}

std::vector<std::string> CheckpointStore::before(int64_t step) const {
  Entries entries = entries_of(directory_);
  std::vector<Entry> all = std::move(entries.published);
  all.insert(all.end(), entries.suspects.begin(), entries.suspects.end());
  std::stable_sort(all.begin(), all.end());
  std::vector<std::string> paths;
  for (const Entry& e : all) {
    if (e.step >= step) continue;
    try {
      complete_manifest(e.path);
      paths.push_back(e.path);
    } catch (const CorruptFile&) {
      // Skip an incomplete one.
    }
  }
  return paths;
}

std::set<int64_t> steps_of(const std::vector<std::string>& checkpoints) {
  std::set<int64_t> steps;
  for (const std::string& path : checkpoints) steps.insert(step_of_folder(path).value());
  return steps;
}

std::string CheckpointStore::path_of(int64_t step) const { return fmt::format("{}/step-{:08}", directory_, step); }

std::string CheckpointStore::partial_of(int64_t step) const {
  return fmt::format("{}/.step-{:08}.partial", directory_, step);
}

std::string CheckpointStore::begin(int64_t step) const {
  CHECK(step >= 0, "a checkpoint of step {}", step);
  CHECK(!why_of_no_use(path_of(step)).empty(),
        "{} is a complete checkpoint and is not overwritten; resume from it, or choose another directory",
        path_of(step));
  const std::string remedy = "may this user write checkpoints there?";
  std::string folder = partial_of(step);
  remove(folder);
  if (std::error_code ignored; !fs::exists(directory_, ignored)) make_folders(directory_, remedy);
  make_folder(folder, remedy);
  return folder;
}

std::string CheckpointStore::publish(const std::string& folder, Manifest manifest) const {
  try {
    std::string target = path_of(manifest.step);
    CHECK(folder == partial_of(manifest.step), "{} was not begun for a checkpoint of step {}", folder, manifest.step);
    std::sort(manifest.files.begin(), manifest.files.end(),
              [](const FileRecord& a, const FileRecord& b) { return a.name < b.name; });
    for (size_t i = 1; i < manifest.files.size(); i++)
      CHECK(manifest.files[i].name != manifest.files[i - 1].name, "two ranks wrote {}", manifest.files[i].name);
    check_files(folder, manifest);
    check_complete(manifest);

    write_file(folder + "/manifest.json", to_text(manifest));
    if (std::error_code ignored; fs::exists(fs::symlink_status(target, ignored))) {  // also a link without a target
      CHECK(!why_of_no_use(target).empty(), "{} is a complete checkpoint and is not overwritten", target);
      set_aside(target);
    }
    move_file(folder, target);
    return target;
  } catch (const Error& e) {
    try {
      remove(folder);
    } catch (const Error& another) {
      FAIL("{}; moreover, {}", e.what(), another.what());
    }
    throw;
  }
}

void CheckpointStore::remove(const std::string& path) const {
  const std::string name = fs::path(path).filename().string();
  if (name.starts_with('.')) return remove_all(path);
  const std::string doomed = fmt::format("{}/.{}.removed", directory_, name);
  move_file(path, doomed);
  remove_all(doomed);
}

Pruned CheckpointStore::prune(int64_t keep, const Needed& needed) const {
  CHECK(keep >= 0, "cannot keep {} checkpoints; 0 keeps all", keep);
  Pruned pruned;
  const auto try_removing = [&](const std::string& path) {
    try {
      remove(path);
      pruned.removed.push_back(path);
    } catch (const Error& e) {
      pruned.failures.push_back(e.what());
    }
  };
  const Entries entries = entries_of(directory_);
  for (const auto* leftovers : {&entries.unfinished, &entries.removed})
    for (const Entry& e : *leftovers) try_removing(e.path);
  if (keep == 0) return pruned;
  const std::vector<std::string> complete = usable();
  const std::set<int64_t> stay = needed ? needed(steps_of(complete)) : std::set<int64_t>{};
  for (size_t i = static_cast<size_t>(keep); i < complete.size(); i++)
    if (!stay.contains(step_of_folder(complete[i]).value())) try_removing(complete[i]);
  return pruned;
}

}  // namespace megalith
