// A folder of a disk that forgets: the calls that were made below it (kernels/system/files.h), and what of them the
// disk may have when power fails.
//
// The law is POSIX's at its weakest, as in "All File Systems Are Not Created Equal" (Pillai et al., OSDI 2014). What
// fsync has not promised may be there or not, in any order: each write of a file for itself, in part, or as zeros where
// only the file's length arrived; each change of a folder's names for itself. fsync of a file keeps its bytes, not its
// name; fsync of a folder its names, not their bytes. Only a rename happens at once or not at all, as on every file
// system with a journal.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/system/file_calls.h"
#include "kernels/system/files.h"

namespace megalith::test {

// A folder holds these, by path from there: bytes of files; nothing for folders. Locks do not count.
using DiskTree = std::map<std::string, std::optional<std::string>>;

inline DiskTree tree_below(const std::string& folder) {
  DiskTree tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().lexically_relative(folder).string();
    if (entry.path().filename() == "lock") continue;
    if (entry.is_directory()) {
      tree[path] = std::nullopt;
      continue;
    }
    std::ifstream in(entry.path(), std::ios::binary);
    tree[path] = std::string(std::istreambuf_iterator<char>(in), {});
  }
  return tree;
}

// Makes the folder hold just this.
inline void spill_tree(const DiskTree& tree, const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& [path, bytes] : tree)  // a folder comes before what is in it
    if (bytes)
      std::ofstream(folder + "/" + path, std::ios::binary) << *bytes;
    else
      std::filesystem::create_directory(folder + "/" + path);
}

// A folder that vanishes, in memory where there is such a place: hundreds of states are made and flushed.
class QuickFolder {
 public:
  QuickFolder() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    path_ = (in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/megalith-crash-XXXXXX";
    CHECK(::mkdtemp(path_.data()) != nullptr, "cannot make {}", path_);
  }
  ~QuickFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  QuickFolder(const QuickFolder&) = delete;
  QuickFolder& operator=(const QuickFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A call, its paths from the folder on, and what it wrote.
struct DiskCall {
  FileEvent event;
  std::string bytes;
};

// While it lives, all calls below a folder are kept.
class RecordedDisk {
 public:
  explicit RecordedDisk(const std::string& folder) : folder_(normal(folder)) {}
  const std::vector<DiskCall>& calls() const { return calls_; }

 private:
  static std::string normal(const std::string& path) {
    std::string plain = std::filesystem::path(path).lexically_normal().string();
    if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
    return plain;
  }
  bool make_relative(std::string& path) const {
    path = normal(path);
    if (path == folder_)
      path = "";
    else if (path.starts_with(folder_ + "/"))
      path = path.substr(folder_.size() + 1);
    else
      return false;
    return true;
  }
  FileFate record(FileEvent event) {
    if (event.call == FileCall::open || event.call == FileCall::lock || !make_relative(event.path)) return {};
    if (event.call == FileCall::rename) CHECK(make_relative(event.to), "{} leaves the folder", event.to);
    DiskCall call{event, {}};
    if (event.data) call.bytes.assign(static_cast<const char*>(event.data), static_cast<size_t>(event.bytes));
    call.event.data = nullptr;
    calls_.push_back(std::move(call));
    return {};
  }

  std::string folder_;
  std::vector<DiskCall> calls_;
  FileHook hook_{[this](const FileEvent& event) { return record(event); }};
};

class SimulatedDisk {
 public:
  using Node = int;
  using Name = std::pair<Node, std::string>;  // in a folder
  struct Change {                             // of names, all at once
    std::vector<std::pair<Name, std::optional<Node>>> sets;
    bool touches(Node folder) const {
      return std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return set.first.first == folder; });
    }
  };
  struct Write {
    int64_t offset;
    std::string bytes = {};
    int64_t size = -1;  // of the file from then on, where that is all
  };
  struct Content {
    bool is_folder = false;
    std::string kept = {};           // what the disk is known to have
    std::vector<Write> writes = {};  // since then
  };

  // All of it is on the disk.
  explicit SimulatedDisk(const DiskTree& tree) : contents_{{.is_folder = true}} {
    for (const auto& [path, bytes] : tree) {
      const Node node = add({.is_folder = !bytes, .kept = bytes.value_or("")});
      names_[name_of(path)] = node;
    }
    kept_names_ = names_;
  }

  void make(const DiskCall& call) {
    const FileEvent& e = call.event;
    switch (e.call) {
      case FileCall::create:
        if (!find(e.path)) change({{{name_of(e.path), add({})}}});
        break;
      case FileCall::make_folder:
        if (!find(e.path)) change({{{name_of(e.path), add({.is_folder = true})}}});
        break;
      case FileCall::write: write(e.path, {e.offset, call.bytes}); break;
      case FileCall::resize: write(e.path, {0, {}, e.bytes}); break;
      case FileCall::reserve:
        if (const auto node = find(e.path); node && now(*node).size() < static_cast<size_t>(e.bytes))
          write(e.path, {0, {}, e.bytes});
        break;
      case FileCall::sync:
        if (const auto node = find(e.path)) {
          content(*node).kept = now(*node);
          content(*node).writes.clear();
        }
        break;
      case FileCall::rename:
        if (const auto node = find(e.path)) change({{{name_of(e.path), std::nullopt}, {name_of(e.to), *node}}});
        break;
      case FileCall::remove: remove(e.path, e.with_contents); break;
      case FileCall::sync_folder:
        if (const auto node = find(e.path)) keep_names_of(*node);
        break;
      default: break;
    }
  }

  // Whether this is a flush of something.
  bool has_to_flush(const DiskCall& call) const {
    const std::optional<Node> node = find(call.event.path);
    if (!node) return false;
    if (call.event.call == FileCall::sync) return !content(*node).writes.empty();
    return call.event.call == FileCall::sync_folder &&
           std::any_of(changes_.begin(), changes_.end(), [&](const Change& c) { return c.touches(*node); });
  }

  // As programs see it.
  DiskTree now() const {
    std::vector<bool> all(changes_.size(), true);
    return tree(all, [&](Node node) { return now(node); });
  }

  // The disk may not have these. Files are those that one may find.
  size_t num_changes() const { return changes_.size(); }
  std::vector<Node> unsynced_files(const std::vector<bool>& made) const {
    std::vector<Node> files;
    walk(made, [&](const std::string&, Node node) {
      if (!content(node).writes.empty()) files.push_back(node);
    });
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    return files;
  }
  const std::vector<Write>& writes(Node file) const { return content(file).writes; }
  const std::string& kept(Node file) const { return content(file).kept; }

  // The disk with those of the changes that are marked, and files that hold what `bytes` says.
  DiskTree tree(const std::vector<bool>& made, const std::function<std::string(Node)>& bytes) const {
    DiskTree tree;
    walk(made, [&](const std::string& path, Node node) {
      if (path == "lock" || path.ends_with("/lock")) return;
      if (content(node).is_folder)
        tree[path] = std::nullopt;
      else
        tree[path] = bytes(node);
    });
    return tree;
  }

  static void apply(const Write& write, std::string& bytes) {
    if (write.size >= 0) return bytes.resize(static_cast<size_t>(write.size));
    bytes.resize(std::max(bytes.size(), static_cast<size_t>(write.offset) + write.bytes.size()));
    write.bytes.copy(bytes.data() + write.offset, write.bytes.size());
  }
  std::string now(Node file) const {
    std::string bytes = content(file).kept;
    for (const Write& write : content(file).writes) apply(write, bytes);
    return bytes;
  }

 private:
  using Names = std::map<Name, Node>;

  Content& content(Node node) { return contents_[static_cast<size_t>(node)]; }
  const Content& content(Node node) const { return contents_[static_cast<size_t>(node)]; }
  Node add(Content content) {
    contents_.push_back(std::move(content));
    return static_cast<Node>(contents_.size()) - 1;
  }

  std::optional<Node> find(const std::string& path) const {
    Node at = 0;
    for (size_t begin = 0; begin < path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto found = names_.find({at, path.substr(begin, end - begin)});
      if (found == names_.end()) return std::nullopt;
      at = found->second;
      begin = end + 1;
    }
    return at;
  }
  Name name_of(const std::string& path) const {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
    const std::optional<Node> node = find(folder);
    CHECK(node, "{} is in no folder that the simulated disk knows", path);
    return {*node, path.substr(slash + 1)};
  }

  static void set(Names& names, const Change& change) {
    for (const auto& [name, node] : change.sets)
      if (node)
        names[name] = *node;
      else
        names.erase(name);
  }
  void change(Change change) {
    set(names_, change);
    changes_.push_back(std::move(change));
  }
  void write(const std::string& path, Write write) {
    if (const auto node = find(path)) content(*node).writes.push_back(std::move(write));
  }
  void remove(const std::string& path, bool with_contents) {
    const std::optional<Node> node = find(path);
    if (!node) return;
    std::vector<std::string> inside;
    for (auto at = names_.lower_bound({*node, ""}); at != names_.end() && at->first.first == *node; ++at)
      inside.push_back(at->first.second);
    if (!inside.empty() && !with_contents) return;
    for (const std::string& name : inside) remove(path + "/" + name, true);
    change({{{name_of(path), std::nullopt}}});
  }

  // The changes of this folder's names, and those before them of the same names.
  void keep_names_of(Node folder) {
    std::set<Name> kept;
    std::vector<bool> keeps(changes_.size());
    for (size_t i = changes_.size(); i-- > 0;) {
      const Change& c = changes_[i];
      keeps[i] = c.touches(folder) ||
                 std::any_of(c.sets.begin(), c.sets.end(), [&](const auto& set) { return kept.contains(set.first); });
      if (keeps[i])
        for (const auto& [name, node] : c.sets) kept.insert(name);
    }
    std::vector<Change> rest;
    for (size_t i = 0; i < changes_.size(); i++)
      if (keeps[i])
        set(kept_names_, changes_[i]);
      else
        rest.push_back(std::move(changes_[i]));
    changes_ = std::move(rest);
    forget_what_is_gone();
  }

  // Forgets the folders that nothing can lead to any more.
  void forget_what_is_gone() {
    std::set<Node> known{0};
    for (const auto& [name, node] : kept_names_) known.insert(node);
    for (const Change& c : changes_)
      for (const auto& [name, node] : c.sets)
        if (node) known.insert(*node);
    std::erase_if(changes_, [&](const Change& c) {
      return std::all_of(c.sets.begin(), c.sets.end(),
                         [&](const auto& set) { return !known.contains(set.first.first); });
    });
  }

  template <class Use>
  void walk(const std::vector<bool>& made, const Use& use) const {
    Names names = kept_names_;
    for (size_t i = 0; i < changes_.size(); i++)
      if (made[i]) set(names, changes_[i]);
    const std::function<void(Node, const std::string&, int)> visit = [&](Node folder, const std::string& prefix,
                                                                         int depth) {
      if (depth > 20) return;
      for (auto at = names.lower_bound({folder, ""}); at != names.end() && at->first.first == folder; ++at) {
        use(prefix + at->first.second, at->second);
        if (content(at->second).is_folder) visit(at->second, prefix + at->first.second + "/", depth + 1);
      }
    };
    visit(0, "", 0);
  }

  std::vector<Content> contents_;  // by node; 0 is the folder itself
  Names names_, kept_names_;       // as programs see them; as the disk is known to have them
  std::vector<Change> changes_;    // since then
};

}  // namespace megalith::test
