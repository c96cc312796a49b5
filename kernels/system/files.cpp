#include "kernels/system/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "kernels/system/file_calls.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;
using file_calls::error_of, file_calls::parent_of, file_calls::why;

constexpr int64_t largest_call = int64_t{1} << 30;  // read and write take at most 2 GiB at once

// Returns the type of the file with this name. Links are not followed; not_found means that no file has it.
fs::file_type type_at(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type();
}

// Returns "a link to X, which does not exist" and the like.
std::string words_of(const std::string& path, fs::file_type type) {
  std::error_code error;
  if (type == fs::file_type::symlink && !fs::exists(path, error))
    return fmt::format("a link to {}, which does not exist", fs::read_symlink(path, error).string());
  return type == fs::file_type::symlink     ? "a link"
         : type == fs::file_type::directory ? "a folder"
         : type == fs::file_type::regular   ? "a file"
                                            : "not a plain file";
}

// Replacing a device or a pipe would break it for all its users, and a link would then mean another file.
void refuse_unreplaceable(const std::string& path) {
  const fs::file_type type = type_at(path);
  CHECK(type == fs::file_type::not_found || type == fs::file_type::none || type == fs::file_type::regular,
        "{} is {} and is not replaced by a file; remove it or choose another", path, words_of(path, type));
}

// Returns a new file's temporary name, and removes what an earlier crash left there.
std::string place_aside(const std::string& path, const Publishing& how) {
  how.replace ? refuse_unreplaceable(path) : check_nothing_at(path, "remove it or choose another");
  discard(path + how.aside);
  return path + how.aside;
}

// Fsyncs a folder's parents. This process cannot have created a parent that it cannot read, so stop there.
void sync_names_of(const std::string& folder) {
  for (std::string at = folder;;) {
    const std::string above = parent_of(at);
    if (above == at || at == "." || at == ".." || ::access(above.c_str(), R_OK) != 0) return;
    sync_folder(above);
    at = above;
  }
}

void rename(const std::string& from, const std::string& to) {
  const int error = error_of({FileCall::rename, from, 0, to}, [&] { return ::rename(from.c_str(), to.c_str()); });
  CHECK(error == 0, "cannot rename {} to {}: {}", from, to, why(error, to));
}

}  // namespace

std::string_view scheme_of(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const size_t end = name.find("://");
  if (end == std::string_view::npos || end == 0 || !is_letter(name[0])) return {};
  const std::string_view scheme = name.substr(0, end);
  const bool is_one = std::all_of(scheme.begin(), scheme.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  });
  return is_one ? scheme : std::string_view();
}

void check_is_path(const std::string& name) {
  const std::string_view scheme = scheme_of(name);
  CHECK(scheme.empty(),
        "{} is not a path, and {}:// is not supported; give a path, such as the folder where it is mounted", name,
        scheme);
}

File::File(std::string path, Use use) : File() {
  path_ = std::move(path);
  check_is_path(path_);
  const bool reads = use == Use::read || use == Use::stream || use == Use::read_own;
  const bool creates = use == Use::create || use == Use::create_own, own = use == Use::create_own;
  // O_NONBLOCK: opening a pipe without a writer would block before it can be refused.
  const int plain = use == Use::stream ? 0 : O_NONBLOCK | (use == Use::read_own ? O_NOFOLLOW : 0);
  const int flags = reads ? O_RDONLY | plain : O_RDWR | O_CREAT | O_NOFOLLOW | (creates ? O_EXCL : 0);
  const int error = error_of({reads ? FileCall::open : FileCall::create, path_}, [&] {
    return fd_ = use == Use::stream && path_ == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                                    : ::open(path_.c_str(), flags | O_CLOEXEC, own ? 0600 : 0666);
  });
  CHECK_INTACT(!reads || !means_absent({error, std::generic_category()}), "cannot open {}: {}", path_,
               why(error, path_));
  CHECK(error == 0, "cannot {} {}: {}", reads ? "open" : "write", path_, why(error, path_));
  if (use != Use::stream) size();
  struct stat info {};
  CHECK(use != Use::read_own || (::fstat(fd_, &info) == 0 && info.st_uid == ::geteuid()),
        "{} belongs to user {}, not to user {} of this process, and is not read", path_, info.st_uid, ::geteuid());
}

File File::in_memory() {
  File file;
  file.fd_ = ::memfd_create("megalith", MFD_CLOEXEC);
  CHECK(file.fd_ >= 0, "cannot create a file in memory: {}", std::strerror(errno));
  file.path_ = fmt::format("/proc/self/fd/{}", file.fd_);
  return file;
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::close() { CHECK(::close(std::exchange(fd_, -1)) == 0, "cannot close {}: {}", path_, why(errno, path_)); }

int64_t File::size() const {
  struct stat info {};
  CHECK(::fstat(fd_, &info) == 0, "cannot examine {}: {}", path_, why(errno, path_));
  CHECK_INTACT(S_ISREG(info.st_mode), "{} is not a plain file", path_);
  return info.st_size;
}

void File::read(int64_t offset, void* out, int64_t bytes) const {
  for (int64_t done = 0; done < bytes;) {
    const auto count = static_cast<size_t>(std::min(bytes - done, largest_call));
    const ssize_t n = ::pread(fd_, static_cast<char*>(out) + done, count, offset + done);
    if (n < 0 && errno == EINTR) continue;
    CHECK(n >= 0, "cannot read {} bytes at {} of {}: {}", bytes - done, offset + done, path_, why(errno, path_));
    CHECK_INTACT(n > 0, "{} ends at byte {}, {} bytes too early: it is truncated", path_, offset + done, bytes - done);
    done += n;
  }
}

int64_t File::read_next(void* out, int64_t most) {
  ssize_t n;
  do n = ::read(fd_, out, static_cast<size_t>(std::min(most, largest_call)));
  while (n < 0 && errno == EINTR);
  CHECK(n >= 0, "cannot read {}: {}", path_, why(errno, path_));
  return n;
}

void File::seek(int64_t offset) {
  CHECK(::lseek(fd_, offset, SEEK_SET) == offset, "cannot seek to byte {} of {}: {}", offset, path_, why(errno, path_));
}

void File::resize(int64_t bytes) {
  const int error = error_of({FileCall::resize, path_, bytes}, [&] { return ::ftruncate(fd_, bytes); });
  CHECK(error == 0, "cannot make {} {} bytes long: {}", path_, bytes, why(error, path_));
}

void File::write(int64_t offset, const void* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const char* rest = static_cast<const char*>(data) + done;
    const FileFate fate = file_calls::fate_of({FileCall::write, path_, bytes - done, {}, offset + done, rest});
    const int64_t allowed = fate.error != 0 && fate.bytes > bytes ? 0 : fate.bytes;
    const auto count = static_cast<size_t>(std::min({bytes - done, largest_call, allowed}));
    const ssize_t n = count == 0 ? 0 : ::pwrite(fd_, rest, count, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && (::fcntl(fd_, F_GETFL) & O_DIRECT) != 0) {  // some systems refuse only now
      write_directly(false);
      continue;
    }
    const int error = n < 0 ? errno : n == 0 && fate.error == 0 ? ENOSPC : fate.error;
    done += std::max<ssize_t>(n, 0);
    CHECK(error == 0, "cannot write {} ({} of {} bytes at {} done): {}", path_, done, bytes, offset, why(error, path_));
  }
}

void File::write_directly(bool directly) {
  const int flags = ::fcntl(fd_, F_GETFL);
  ::fcntl(fd_, F_SETFL, directly ? flags | O_DIRECT : flags & ~O_DIRECT);  // fails where it is not supported
}

void File::reserve(int64_t bytes) {
  if (bytes == 0) return;
  const int error = error_of({FileCall::reserve, path_, bytes}, [&] { return ::fallocate(fd_, 0, 0, bytes); });
  // File systems that cannot reserve say so; there the writes detect a full disk.
  CHECK(error == 0 || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL,
        "cannot reserve {}, {} bytes wanted: {}", path_, bytes, why(error, path_));
}

void File::sync() {
  const int error = error_of({FileCall::sync, path_}, [&] { return ::fsync(fd_); });
  CHECK(error == 0, "cannot flush {} to the disk: {}", path_, why(error, path_));
}

bool File::is_at_its_path() const {
  struct stat mine {
  }, there{};
  return ::fstat(fd_, &mine) == 0 && ::stat(path_.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

NewFile::NewFile(std::string path, const Publishing& how)
    : File(place_aside(path, how), Use::create), name_(std::move(path)), how_(how) {}

NewFile::~NewFile() {
  if (!published_) discard(path());
}

void NewFile::publish() {
  if (how_.durable) sync();
  close();
  if (how_.replace) {
    rename(path(), name_);
    if (how_.durable) sync_folder(parent_of(name_));
  } else {
    move_file(path(), name_);
  }
  published_ = true;
}

bool is_own(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && !S_ISLNK(info.st_mode) && info.st_uid == ::geteuid();
}

std::string read_file(const std::string& path, File::Use use) {
  const File file(path, use);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), static_cast<int64_t>(text.size()));
  return text;
}

void write_file(const std::string& path, std::string_view text, const Publishing& how) {
  NewFile file(path, how);
  file.append(text);
  file.publish();
}

void check_nothing_at(const std::string& path, const std::string& remedy) {
  const fs::file_type type = type_at(path);
  if (type == fs::file_type::not_found || type == fs::file_type::none) return;  // none: opening the file reports why
  CHECK(type != fs::file_type::symlink, "{} is {}, and is not overwritten; {}", path, words_of(path, type), remedy);
  FAIL("{} exists already and is not overwritten; {}", path, remedy);
}

bool make_folder(const std::string& path, const std::string& remedy) {
  std::error_code ignored;
  const int error = error_of({FileCall::make_folder, path}, [&] { return ::mkdir(path.c_str(), 0777); });
  if (error == EEXIST && fs::is_directory(path, ignored)) return false;
  CHECK(error != EEXIST, "cannot make the folder {}: it is {}; {}", path, words_of(path, type_at(path)), remedy);
  CHECK(error == 0, "cannot make the folder {}: {}; {}", path, std::strerror(error), remedy);
  try {
    sync_folder(parent_of(path));
  } catch (const Error&) {
    discard(path);
    throw;
  }
  return true;
}

bool make_folders(const std::string& path, const std::string& remedy) {
  check_is_path(path);
  if (std::error_code ignored; fs::is_directory(path, ignored)) {
    sync_names_of(path);
    return false;
  }
  const std::string above = parent_of(path);
  if (std::error_code ignored; fs::exists(above, ignored))
    sync_names_of(above);
  else
    make_folders(above, remedy);
  return make_folder(path, remedy);
}

void move_file(const std::string& from, const std::string& to) {
  check_nothing_at(to, "remove it or choose another");
  rename(from, to);
  try {
    sync_folder(parent_of(to));
  } catch (const Error&) {
    rename(to, from);
    throw;
  }
}

void sync_folder(const std::string& folder) {
  int fd = -1;
  int error = error_of({FileCall::sync_folder, folder},
                       [&] { return fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd >= 0) {
    if (::fsync(fd) != 0) error = errno;
    ::close(fd);
  }
  // Some network file systems cannot sync a folder and make names durable by themselves.
  CHECK(error == 0 || error == EINVAL, "cannot flush the folder {} to the disk: {}", folder, why(error, folder));
}

void remove_all(const std::string& path) {
  std::error_code error(file_calls::fate_of({.call = FileCall::remove, .path = path, .with_contents = true}).error,
                        std::generic_category());
  if (!error) fs::remove_all(path, error);
  CHECK(!error, "cannot remove {}: {}", path, error.message());
}

void discard(const std::string& path) noexcept {
  std::error_code ignored;
  if (file_calls::fate_of({FileCall::remove, path}).error == 0) fs::remove(path, ignored);
}

void open_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; descriptor++)
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      ::open("/dev/null", O_RDWR);  // takes the lowest free number
}

}  // namespace megalith
