// A file mapped read-only into memory for the life of the object. The file must not shrink meanwhile.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace megalith {

class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // refuses what is missing, empty or not a plain file
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace megalith
