#include "kernels/system/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "kernels/system/file_calls.h"

namespace megalith {

namespace {

// Where this thread jumps when a mapped byte cannot be read; null: it reads none.
thread_local sigjmp_buf* landing = nullptr;
struct sigaction before_ours;

// Other bus errors get their old handler, when the instruction runs again.
void on_bus_error(int) {
  if (landing) ::siglongjmp(*landing, 1);
  ::sigaction(SIGBUS, &before_ours, nullptr);
}

void catch_bus_errors() {
  static const bool caught = [] {
    struct sigaction ours {};
    ours.sa_handler = on_bus_error;
    ours.sa_flags = SA_NODEFER | SA_ONSTACK;  // a jump out of the handler leaves the signal unblocked
    return ::sigaction(SIGBUS, &ours, &before_ours) == 0;
  }();
  CHECK(caught, "cannot catch SIGBUS: {}", std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(const std::string& path, File::Use use) : path_(path) {
  const File file(path, use);
  size_ = static_cast<size_t>(file.size());
  CHECK(size_ > 0, "{} is empty (0 bytes); it was perhaps never written", path);
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd_, 0);
  CHECK(address != MAP_FAILED, "cannot map {} ({} bytes): {}", path, size_, std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
  catch_bus_errors();
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

void MappedFile::guarded(void (*work)(const void*), const void* argument) const {
  sigjmp_buf here;
  sigjmp_buf* const outer = landing;
  if (sigsetjmp(here, 0) == 0) {
    landing = &here;
    try {
      work(argument);
    } catch (...) {
      landing = outer;
      throw;
    }
    landing = outer;
    return;
  }
  landing = outer;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path_, error);
  CHECK_INTACT(!error && bytes >= size_,
               "{} had {} bytes when it was opened, and now has {}: it was truncated or rewritten while it was read; "
               "write another file and rename it over this one instead",
               path_, size_, error ? error.message() : fmt::format("{} now", bytes));
  FAIL("{} cannot be read although it still has its {} bytes; check its disk", path_, bytes);
}

void MappedFile::read(int64_t offset, void* out, int64_t bytes) const {
  CHECK_INTACT(offset >= 0 && bytes >= 0 && offset <= static_cast<int64_t>(size_) - bytes,
               "{} bytes at {} of {}, which has {}: it is truncated", bytes, offset, path_, size_);
  reading([&] { std::memcpy(out, data_ + offset, static_cast<size_t>(bytes)); });
}

SharedMemory::SharedMemory(const std::string& path, int64_t bytes) : path_(path), size_(static_cast<size_t>(bytes)) {
  File file(path, File::Use::create_own);
  try {
    file.reserve(bytes);  // missing memory is reported here, and does not kill a process that touches it later
    file.resize(bytes);
    data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd_, 0);
    CHECK(data_ != MAP_FAILED, "cannot map {} ({} bytes): {}", path, bytes, file_calls::why(errno, path));
  } catch (const Error&) {
    discard(path);
    throw;
  }
}

SharedMemory::~SharedMemory() {
  ::munmap(data_, size_);
  discard(path_);
}

}  // namespace megalith
