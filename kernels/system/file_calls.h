// The calls to the system that change files, as tests see them: each can be watched and be made to fail. The classes of
// this folder make them; nobody else does.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace megalith {

enum class FileCall { open, create, reserve, write, resize, sync, rename, sync_folder, make_folder, remove, lock };

struct FileEvent {
  FileCall call;
  std::string path;
  int64_t bytes = 0;           // to write or reserve; of a resize, the new size
  std::string to = {};         // of a rename
  int64_t offset = 0;          // of a write
  const void* data = nullptr;  // what it writes, during the call
  bool with_contents = false;  // a removal takes a folder with all that is in it
};

struct FileFate {
  int error = 0;                                        // the errno that the call fails with; 0: it is made
  int64_t bytes = std::numeric_limits<int64_t>::max();  // a write first writes this many, and is short or fails then
};

// For tests. While one lives, `decide` is asked before each call of this process to the system, by one thread at a
// time, and may not throw or call anything here. It is the only state here that belongs to no object: one at a time,
// installed and removed while no other thread has files.
class FileHook {
 public:
  using Decide = std::function<FileFate(const FileEvent&)>;
  explicit FileHook(Decide decide);
  ~FileHook();
  FileHook(const FileHook&) = delete;
  FileHook& operator=(const FileHook&) = delete;

 private:
  Decide decide_;
};

namespace file_calls {

// What the hook says of a call that is about to be made; without a hook, that it is made.
FileFate fate_of(const FileEvent& event);

// Makes a call, again when a signal has interrupted it: 0, or the errno.
template <class Call>
int error_of(const FileEvent& event, Call call) {
  if (const int error = fate_of(event).error; error != 0) return error;
  int result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

// What the system says of an errno, and what to do about it.
std::string why(int error, const std::string& path);

std::string parent_of(const std::string& path);  // of "a/b/", as of "a/b", "a"; of "a", "."

}  // namespace file_calls
}  // namespace megalith
