#include "data/corpus/prepare_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/samples/prepared_note.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// Names like train.bin and train-00000.idx.
bool is_token_file(const std::string& name) {
  for (const std::string part : {"train", "validation"}) {
    if (!name.starts_with(part)) continue;
    const std::string rest = name.substr(part.size());
    const size_t dot = rest.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string ending = rest.substr(dot);
    if (ending != ".bin" && ending != ".idx" && ending != ".mask") continue;
    if (dot == 0 ||
        (dot > 1 && rest[0] == '-' && std::all_of(rest.begin() + 1, rest.begin() + std::ptrdiff_t(dot), [](char c) {
           return c >= '0' && c <= '9';
         })))
      return true;
  }
  return false;
}

bool is_published(const std::string& name) {
  return name == "tokenizer" || name == prepared_note || name == PrepareFolder::chat_template || is_token_file(name);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

PrepareFolder::PrepareFolder(const std::string& out) : out_(out), partial_(out_ / "prepare.partial") {
  refuse_existing();
  std::error_code absent;
  for (fs::path folder = out_; !folder.empty() && !exists(symlink_status(folder, absent));
       folder = folder.parent_path())
    made_.push_back(folder);
  bool is_new = false;
  try {
    make_folders(out_.string(), "give one that can be written");
    is_new = make_folders(partial_.string(), "give one that can be written");
    const bool is_ours = fs::exists(partial_ / made_of, absent) || fs::exists(partial_ / publishing, absent);
    if (!is_new && !is_ours)
      for (const std::string& name : names_in(partial_))
        CHECK(name == "lock" || name.starts_with(made_of),
              "{} exists, and prepare did not write {} in it; if no prepare is running, remove it", partial_.string(),
              name);
    lock_.emplace(partial_.string(), "write to another folder");
    keeps_ = fs::exists(partial_ / made_of, absent) || fs::exists(partial_ / publishing, absent);
  } catch (const Error&) {
    if (is_new) {
      discard((partial_ / "lock").string());
      discard(partial_.string());
    }
    clean_out();
    throw;
  }
}

PrepareFolder::~PrepareFolder() {
  if (keeps_ || published_) return;
  try {
    remove_partial();
  } catch (const Error&) {  // another error is already propagating
  }
  clean_out();
}

void PrepareFolder::read_note(const std::string& name, const std::function<void(const nlohmann::json&)>& read) const {
  std::error_code absent;
  if (!fs::exists(partial_ / name, absent)) return;
  try {
    read(parse_json(read_file(path(name))));
  } catch (const nlohmann::json::exception& error) {
    FAIL("{} is damaged: {}; remove the folder {} to start over", path(name), error.what(), partial_.string());
  }
}

void PrepareFolder::note(const std::string& name, const nlohmann::json& value) {
  write_file(path(name), json_text(value) + "\n", {.replace = true});
}

void PrepareFolder::forget(const std::string& name) { remove_all(path(name)); }

void PrepareFolder::refuse_existing() const {
  std::error_code absent;
  if (fs::exists(partial_ / publishing, absent)) return;  // these are our own files
  std::vector<std::string> found;
  for (const std::string& name : names_in(out_))
    if (is_published(name)) found.push_back(name);
  CHECK(found.empty(), "{} exists, and nothing is overwritten; remove it or write to another folder",
        (out_ / found.front()).string());
}

std::string PrepareFolder::publish(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    CHECK(is_published(name), "{} names {}, which prepare never writes; remove the folder {} to start over",
          path(publishing), name, partial_.string());
  std::vector<std::string> moved;
  try {
    for (const std::string& name : names) {
      std::error_code absent;
      if (!fs::exists(partial_ / name, absent) && fs::exists(out_ / name, absent)) continue;
      move_file(path(name), (out_ / name).string());
      moved.push_back(name);
    }
    sync_folder(out_.string());  // also flushes names that were moved before a crash
  } catch (const Error&) {
    for (const std::string& name : moved) try {
        move_file((out_ / name).string(), path(name));
      } catch (const Error&) {
        keeps_ = true;  // a restart finds the files there
      }
    throw;
  }
  published_ = true;
  try {
    // After a crash here, this marker tells the next prepare that only the clean-up remains.
    for (const std::string& name : names_in(partial_))
      if (name != publishing && name != "lock") remove_all(path(name));
    remove_partial();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Some network file systems keep the name of an open file; the folder is then not empty.
void PrepareFolder::remove_partial() {
  lock_.reset();
  remove_all(partial_.string());
}

void PrepareFolder::clean_out() const {
  for (const fs::path& folder : made_) discard(folder.string());  // only if still empty
}

}  // namespace megalith
