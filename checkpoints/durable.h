// Bytes that are on the disk when the call returns, and errors that say what was missing. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace megalith {

// A file descriptor with an owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

// Damage if there is no such file.
Descriptor open_to_read(const std::string& path);
int64_t size_of_file(const Descriptor& file, const std::string& path);
// Exactly `bytes` bytes from `offset`; Damage if the file ends before.
void read_exactly(const Descriptor& file, const std::string& path, int64_t offset, void* out, int64_t bytes);
std::string read_text(const std::string& path);

// A new file under a temporary name beside `path`, which gets its name in commit() and disappears in the destructor
// otherwise. Nothing exists under `path` before it is whole and on the disk.
class DurableFile {
 public:
  // Reserves `bytes`, so that a full disk is known before the first byte is written. Replaces a temporary file that an
  // earlier death left.
  DurableFile(std::string path, int64_t bytes);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  // Declares and reserves another size, for a file whose whole size is known later than a part of it.
  void reserve(int64_t bytes);
  void write(int64_t offset, const void* data, int64_t bytes);
  // fsync, rename, fsync of the folder. `path` must not exist (Error).
  void commit();

 private:
  explicit DurableFile(std::string path);
  [[noreturn]] void fail(const char* what, int error) const;

  std::string path_;
  std::string temporary_;
  int64_t bytes_ = 0;
  Descriptor file_;
  bool committed_ = false;
};

// Makes the names in a folder durable.
void sync_folder(const std::string& folder);
// Renames a folder within its parent and makes that durable. `to` must not exist (Error).
void rename_folder(const std::string& from, const std::string& to);
void remove_folder(const std::string& folder);

}  // namespace megalith
