// A file of lines (or records) for appending that survives a full disk: it keeps lines that it cannot write in memory,
// and writes them in order once that succeeds. It counts and drops what exceeds most_kept. It reports the first failure
// and its end. Lines that other processes append meanwhile are kept. sync() notices if the file was removed or
// replaced.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kernels/system/files.h"

namespace megalith {

class RetryingFile {
 public:
  static constexpr size_t most_kept = 4 << 20;  // bytes
  // Receives a sentence; must not append to this file.
  using Warn = std::function<void(const std::string&)>;

  // Appends to the file, on a new line if `lines` and the last one was cut short. Throws Error if it cannot be opened.
  RetryingFile(const std::string& path, bool lines, Warn warn);
  // Tries once more, and reports how many lines are lost.
  ~RetryingFile();
  RetryingFile(const RetryingFile&) = delete;
  RetryingFile& operator=(const RetryingFile&) = delete;

  // Appends `count` whole lines.
  void append(const std::string& text, int64_t count = 1);
  // Flushes to disk, if the disk allows it. A removed file is created again with its content; a file that replaced it
  // is appended to. Returns a sentence about that, or "".
  std::string sync();

 private:
  std::string reopen();
  void write();
  void fail(const std::string& why);

  std::optional<File> file_;
  Warn warn_;
  int64_t end_;             // end of the whole lines of all writers
  bool half_left_ = false;  // a part of our line follows `end_` and could not be removed
  std::string kept_;        // text to write next
  int64_t kept_lines_ = 0;
  int64_t lost_lines_ = 0;  // dropped, after kept_
  bool failing_ = false;
};

}  // namespace megalith
