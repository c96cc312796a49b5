#include "checkpoints/durable.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "checkpoints/damage.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

constexpr int64_t largest_call = int64_t{1} << 30;  // read and write take at most 2 GiB at once

std::string why(int error) { return std::strerror(error); }

std::string parent_of(const std::string& path) {
  fs::path p(path);
  if (!p.has_filename()) p = p.parent_path();  // "a/b/"
  const std::string parent = p.parent_path().string();
  return parent.empty() ? "." : parent;
}

// What the file system, or a limit on the process, still allows for one file.
std::string space_left(const std::string& folder, int error) {
  struct rlimit limit {};
  if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fmt::format("the largest file allowed to this process has {} bytes; raise it (ulimit -f)", limit.rlim_cur);
  struct statvfs fs_info {};
  if (statvfs(folder.c_str(), &fs_info) != 0) return "free space unknown; free some or choose another directory";
  return fmt::format(
      "{} bytes are available there; free some space, keep fewer checkpoints or choose another directory",
      static_cast<uint64_t>(fs_info.f_bavail) * fs_info.f_frsize);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Descriptor open_to_read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = errno;
  CHECK_INTACT(fd >= 0 || !means_absent({error, std::generic_category()}), "cannot open {}: {}", path, why(error));
  CHECK(fd >= 0, "cannot open {}: {}{}", path, why(error),
        error == EMFILE ? "; allow this process more open files (ulimit -n)" : "");
  return Descriptor(fd);
}

int64_t size_of_file(const Descriptor& file, const std::string& path) {
  struct stat info {};
  CHECK(::fstat(file.get(), &info) == 0, "cannot examine {}: {}", path, why(errno));
  CHECK(S_ISREG(info.st_mode), "{} is not a regular file", path);
  return info.st_size;
}

void read_exactly(const Descriptor& file, const std::string& path, int64_t offset, void* out, int64_t bytes) {
  char* position = static_cast<char*>(out);
  for (int64_t left = bytes; left > 0;) {
    const ssize_t n = ::pread(file.get(), position, static_cast<size_t>(std::min(left, largest_call)), offset);
    if (n < 0 && errno == EINTR) continue;
    CHECK(n >= 0, "cannot read {} bytes at {} of {}: {}", left, offset, path, why(errno));
    CHECK_INTACT(n > 0, "{} ends at byte {}, {} bytes too early: it is truncated", path, offset, left);
    position += n;
    offset += n;
    left -= n;
  }
}

std::string read_text(const std::string& path) {
  const Descriptor file = open_to_read(path);
  std::string text(static_cast<size_t>(size_of_file(file, path)), '\0');
  read_exactly(file, path, 0, text.data(), static_cast<int64_t>(text.size()));
  return text;
}

DurableFile::DurableFile(std::string path, int64_t bytes) : DurableFile(std::move(path)) { reserve(bytes); }

DurableFile::DurableFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".partial") {
  ::unlink(temporary_.c_str());
  const int fd = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  CHECK(fd >= 0, "cannot create {}: {}; does the folder exist, and may this user write there?", temporary_, why(errno));
  file_ = Descriptor(fd);
}

void DurableFile::reserve(int64_t bytes) {
  bytes_ = bytes;
  if (bytes == 0) return;
  int result;
  do result = ::fallocate(file_.get(), 0, 0, bytes) == 0 ? 0 : errno;
  while (result == EINTR);
  // File systems that cannot reserve say so; there the writes themselves find the end of the disk.
  if (result == 0 || result == EOPNOTSUPP || result == ENOSYS || result == EINVAL) return;
  fail("reserve", result);
}

DurableFile::~DurableFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void DurableFile::fail(const char* what, int error) const {
  const bool space = error == ENOSPC || error == EFBIG || error == EDQUOT;
  FAIL("cannot {} {}, {} bytes wanted: {}{}{}", what, temporary_, bytes_, why(error), space ? "; " : "",
       space ? space_left(parent_of(path_), error) : "");
}

void DurableFile::write(int64_t offset, const void* data, int64_t bytes) {
  CHECK(0 <= offset && offset + bytes <= bytes_, "{} bytes at {} of {}, which was declared to have {}", bytes, offset,
        path_, bytes_);
  const char* position = static_cast<const char*>(data);
  for (int64_t left = bytes; left > 0;) {
    const ssize_t n = ::pwrite(file_.get(), position, static_cast<size_t>(std::min(left, largest_call)), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write", n < 0 ? errno : ENOSPC);
    position += n;
    offset += n;
    left -= n;
  }
}

void DurableFile::commit() {
  if (::ftruncate(file_.get(), bytes_) != 0) fail("set the size of", errno);  // a tail that nobody wrote is zeros
  if (::fsync(file_.get()) != 0) fail("flush", errno);
  if (::close(file_.release()) != 0) fail("close", errno);
  CHECK(::access(path_.c_str(), F_OK) != 0, "{} exists already and is not overwritten", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename", errno);
  committed_ = true;
  sync_folder(parent_of(path_));
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(fd >= 0, "cannot open the folder {}: {}", folder, why(errno));
  const Descriptor owner(fd);
  const int result = ::fsync(fd);
  // Some network file systems cannot sync a folder and make names durable by themselves.
  CHECK(result == 0 || errno == EINVAL, "cannot flush the folder {}: {}", folder, why(errno));
}

void rename_folder(const std::string& from, const std::string& to) {
  CHECK(::access(to.c_str(), F_OK) != 0, "cannot rename {}: {} exists already", from, to);
  CHECK(::rename(from.c_str(), to.c_str()) == 0, "cannot rename {} to {}: {}", from, to, why(errno));
  sync_folder(parent_of(to));
}

void remove_folder(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  CHECK(!error, "cannot remove {}: {}", folder, error.message());
}

}  // namespace megalith
