// The system calls that change files. Only the classes of this folder make them. Tests can watch each and make it fail.
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
  int64_t bytes = 0;           // to write or reserve; for resize the new size
  std::string to = {};         // rename's target
  int64_t offset = 0;          // write's offset
  const void* data = nullptr;  // write's bytes, valid during the call
  bool with_contents = false;  // a removal of a folder with its contents
};

struct FileFate {
  int error = 0;  // the errno with which the call fails; 0: it is made
  // A write first writes this many bytes; then it is short or fails.
  int64_t bytes = std::numeric_limits<int64_t>::max();
};

// For tests: during its lifetime `decide` is called before each system call of this process, by one thread at a time.
// It must not throw or call a function of this header. There is at most one hook, installed and removed while no other
// thread uses files.
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

// Returns the hook's decision on a call; without a hook the call is made.
FileFate fate_of(const FileEvent& event);

// Makes a call, again if a signal interrupts it. Returns 0 or the errno.
template <class Call>
int error_of(const FileEvent& event, Call call) {
  if (const int error = fate_of(event).error; error != 0) return error;
  int result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

// Describes an errno, with a remedy.
std::string why(int error, const std::string& path);

std::string parent_of(const std::string& path);  // "a" for "a/b/" and "a/b"; "." for "a"

}  // namespace file_calls
}  // namespace megalith
