// Every call to the system's files, recorded through kernels/system/files.h, and the law that their order obeys.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kernels/system/file_calls.h"
#include "kernels/system/files.h"

namespace megalith::test {

class RecordedFiles {
 public:
  const std::vector<FileEvent>& events() const { return events_; }

 private:
  std::vector<FileEvent> events_;
  FileHook hook_{[this](const FileEvent& event) {
    events_.push_back(event);
    return FileFate{};
  }};
};

inline std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Whatever has its final name survives the loss of power at any moment: what is on the disk alone is given a name, a
// folder's names are on the disk before it is given one, and at the end nothing is left to be flushed. Returns what
// breaks that, or nothing. Locks need not survive, nor the last lines of a log; what is removed no longer counts.
inline std::string order_fault(const std::vector<FileEvent>& events) {
  std::set<std::string> unflushed;  // files, and folders with a slash at the end
  const auto forget = [&](const std::string& path) {
    std::erase_if(unflushed, [&](const std::string& u) { return u == path || u.starts_with(path + "/"); });
  };
  for (const FileEvent& e : events) {
    if (e.path.ends_with("/lock") || e.path.ends_with("/log.txt")) continue;
    if (e.call == FileCall::write || e.call == FileCall::resize || e.call == FileCall::create) unflushed.insert(e.path);
    if (e.call == FileCall::sync) unflushed.erase(e.path);
    if (e.call == FileCall::make_folder) unflushed.insert(folder_of(e.path) + "/");
    if (e.call == FileCall::sync_folder) unflushed.erase(e.path + "/");
    if (e.call == FileCall::remove) forget(e.path);
    if (e.call != FileCall::rename) continue;
    for (const std::string& u : unflushed)
      if (!u.ends_with('/') || u.starts_with(e.path + "/"))
        return u + " is not flushed when " + e.to + " gets its name";
    unflushed.insert({folder_of(e.path) + "/", folder_of(e.to) + "/"});
  }
  return unflushed.empty() ? "" : *unflushed.begin() + " is never flushed";
}

}  // namespace megalith::test
