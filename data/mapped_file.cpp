#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/check.h"

namespace megalith {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0, "cannot open {}: {}; check the path", path, std::strerror(errno));
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  if (!known || !S_ISREG(info.st_mode) || info.st_size == 0) {
    ::close(fd);
    CHECK(known && S_ISREG(info.st_mode), "{} is not a plain file", path);
    FAIL("{} is empty (0 bytes); it was perhaps never written", path);
  }
  size_ = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  CHECK(address != MAP_FAILED, "cannot map {} ({} bytes): {}", path, size_, std::strerror(error));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace megalith
