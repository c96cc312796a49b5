// A file being written. Every write is checked, and finish() returns only when the bytes are on the disk. Refuses to
// begin where a file exists. Without finish() the destructor removes the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megalith {

class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view bytes);
  template <class T>
  void write(std::span<const T> values) {
    write({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  void finish();  // once

 private:
  std::string path_;
  int fd_;
};

// Makes the names in a folder durable, as fsync on a file does its bytes. No error where the file system cannot sync
// folders.
void sync_names(const std::string& folder);

// What is written at once and whole.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace megalith
