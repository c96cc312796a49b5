#include "trainer/job/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"

namespace megalith {

namespace {

std::string read_line(int fd) {
  std::array<char, 512> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  const std::string read(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  return read.substr(0, read.find('\n'));
}

std::string this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& remedy) {
  const std::string path = folder + "/lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  CHECK(fd_ >= 0, "cannot write {}: {}; {}", path, std::strerror(errno), remedy);
  int failed;
  do failed = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  while (failed == EINTR);
  if (failed == EWOULDBLOCK) {
    const std::string holder = read_line(fd_);
    ::close(std::exchange(fd_, -1));
    FAIL("{} is in use by {}: two jobs would overwrite each other's files; wait for that one to end, stop it, or {}",
         folder, holder.empty() ? "another process" : holder, remedy);
  }
  if (failed != 0) absent_ = std::strerror(failed);
  const std::string text = this_process() + "\n";
  const bool written =
      ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (!written) ::close(std::exchange(fd_, -1));
  CHECK(written, "cannot write {}: {}; is the disk full? {}", path, std::strerror(error), remedy);
}

FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  // Nobody is in here any more. A name left behind would only be the wrong one to the next reader.
  if (::ftruncate(fd_, 0) != 0) errno = 0;
  ::close(fd_);
}

}  // namespace megalith
