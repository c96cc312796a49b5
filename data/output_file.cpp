#include "data/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/check.h"

namespace megalith {

OutputFile::OutputFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  CHECK(fd_ >= 0, "cannot create {}: {}; give a folder that can be written and does not hold it yet", path,
        std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    CHECK(n >= 0, "cannot write {} ({} of {} bytes went): {}; make room or write elsewhere", path_, done, bytes.size(),
          std::strerror(errno));
    done += static_cast<size_t>(n);
  }
}

void OutputFile::finish() {
  CHECK(::fsync(fd_) == 0, "cannot write {} to the disk: {}; make room or write elsewhere", path_,
        std::strerror(errno));
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) == 0) return;
  const int error = errno;
  ::unlink(path_.c_str());
  FAIL("cannot close {}: {}; make room or write elsewhere", path_, std::strerror(error));
}

void sync_names(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(fd >= 0, "cannot open the folder {}: {}", folder, std::strerror(errno));
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot sync a folder and make names durable by themselves.
  CHECK(result == 0 || error == EINVAL, "cannot write the folder {} to the disk: {}", folder, std::strerror(error));
}

void write_file(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.finish();
}

}  // namespace megalith
