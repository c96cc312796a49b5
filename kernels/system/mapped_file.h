// Files mapped into memory: for reading, and for sharing memory between processes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "kernels/system/files.h"

namespace megalith {

// A file mapped read-only for the life of the object. If it shrinks or its disk fails, the system kills a process that
// reads the bytes, except in read() or reading(): those throw CorruptFile or Error.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path, File::Use use = File::Use::read);  // refuses one that is empty
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  void read(int64_t offset, void* out, int64_t bytes) const;  // exactly `bytes` bytes
  // Calls work(), which reads bytes(). A failed read leaves work() by longjmp, so it must not own anything then.
  template <class Work>
  void reading(const Work& work) const {
    guarded([](const void* w) { (*static_cast<const Work*>(w))(); }, &work);
  }

 private:
  void guarded(void (*work)(const void*), const void* argument) const;

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A new file of zeros, mapped for the life of the object into memory that other processes of this user may read. The
// destructor removes the file.
class SharedMemory {
 public:
  SharedMemory(const std::string& path, int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* data() const { return data_; }

 private:
  std::string path_;
  void* data_ = nullptr;
  size_t size_;
};

}  // namespace megalith
