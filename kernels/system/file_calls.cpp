#include "kernels/system/file_calls.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include "kernels/system/check.h"

namespace megalith {

namespace {
const FileHook::Decide* installed = nullptr;
}  // namespace

FileHook::FileHook(Decide decide) : decide_(std::move(decide)) {
  CHECK(!installed, "a hook for files is already installed; only one is possible");
  installed = &decide_;
}

FileHook::~FileHook() { installed = nullptr; }

namespace file_calls {

FileFate fate_of(const FileEvent& event) {
  static std::mutex one_at_a_time;
  if (!installed) return {};
  const std::lock_guard lock(one_at_a_time);
  return (*installed)(event);
}

std::string parent_of(const std::string& path) {
  std::filesystem::path p(path);
  if (!p.has_filename()) p = p.parent_path();  // "a/b/"
  const std::string parent = p.parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string why(int error, const std::string& path) {
  std::string remedy;
  struct rlimit limit {};
  struct statvfs disk {};
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    remedy =
        fmt::format("; the largest file allowed to this process has {} bytes; raise it (ulimit -f)", limit.rlim_cur);
  else if (error == ENOSPC || error == EFBIG || error == EDQUOT)
    remedy = fmt::format(
        "; {} bytes are available there; free some space, keep fewer checkpoints or choose another folder",
        ::statvfs(parent_of(path).c_str(), &disk) == 0 ? std::to_string(disk.f_bavail * disk.f_frsize) : "unknown");
  else if (error == EMFILE)
    remedy = "; allow this process more open files (ulimit -n)";
  else if (error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == EROFS)
    remedy = "; check the path and its permissions";
  else if (error == ELOOP)
    remedy = "; it is a link, and files are not written through links: remove it or choose another place";
  return std::strerror(error) + remedy;
}

}  // namespace file_calls
}  // namespace megalith
