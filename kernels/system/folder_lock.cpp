#include "kernels/system/folder_lock.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/system/file_calls.h"

namespace megalith {

namespace {
constexpr std::string_view lock_begin = "process ";  // as in "process 12 on host\n"
constexpr int64_t longest_lock = 512;
}  // namespace

bool FolderLock::is_lock() const {
  std::string text(static_cast<size_t>(std::min(file_.size(), longest_lock)), '\0');
  file_.read(0, text.data(), static_cast<int64_t>(text.size()));
  const size_t digits = text.find_first_not_of("0123456789", lock_begin.size());
  if (text.find_first_not_of('\0') == std::string::npos) return true;  // a power failure may leave zeros
  return file_.size() < longest_lock && text.starts_with(lock_begin) && digits > lock_begin.size() &&
         text.compare(std::min(digits, text.size()), 4, " on ") == 0;
}

FolderLock::FolderLock(const std::string& folder, const std::string& remedy)
    : file_(folder + "/lock", File::Use::append) {
  const int error =
      file_calls::error_of({FileCall::lock, file_.path()}, [&] { return ::flock(file_.fd_, LOCK_EX | LOCK_NB); });
  if (error == EWOULDBLOCK) {
    std::string holder(512, '\n');
    if (::pread(file_.fd_, holder.data(), holder.size() - 1, 0) <= 0) holder[0] = '\n';  // released meanwhile
    holder.resize(holder.find('\n'));
    FAIL("{} is in use by {}: two jobs would overwrite each other's files; wait for that one to end, stop it, or {}",
         folder, holder.empty() ? "another process" : holder, remedy);
  }
  if (error != 0) absent_ = std::strerror(error);
  CHECK(is_lock(), "{} is not the lock of a job and is not overwritten; move it away or {}", file_.path(), remedy);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string text = fmt::format("{}{} on {}\n", lock_begin, ::getpid(), host);
  file_.write(0, text.data(), static_cast<int64_t>(text.size()));
  CHECK(::ftruncate(file_.fd_, static_cast<off_t>(text.size())) == 0, "cannot shorten {}: {}", file_.path(),
        std::strerror(errno));
}

FolderLock::~FolderLock() {
  // The folder is free again: a name left in the file would mislead readers.
  if (::ftruncate(file_.fd_, 0) != 0) errno = 0;
}

}  // namespace megalith
