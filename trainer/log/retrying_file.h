// A file of lines (or records) that is appended to, and that a full disk does not end: what cannot be written is kept
// in memory and written, in its place, once that can be done again. What others append meanwhile stays. What is beyond
// most_kept is lost, and counted. Nothing happens in silence: the first failure and its end are told. Nor does it end
// by the removal of its name, which sync() notices.
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
  // Is told a sentence; may not append to this file.
  using Tell = std::function<void(const std::string&)>;

  // Goes on behind what the file holds, on a new line if `lines` and the last one was cut short. Error: it cannot be
  // opened.
  RetryingFile(const std::string& path, bool lines, Tell tell);
  // Tries once more, and tells how many lines are lost.
  ~RetryingFile();
  RetryingFile(const RetryingFile&) = delete;
  RetryingFile& operator=(const RetryingFile&) = delete;

  // `count` whole lines.
  void append(const std::string& text, int64_t count = 1);
  // What was written is on the disk, if the disk allows it. Where its name was removed, the file is there again, with
  // what it held; where another has its name, it goes on behind that. Returns a sentence about that; empty: all is
  // well.
  std::string sync();

 private:
  std::string find_again();
  void write();
  void fail(const std::string& why);

  std::optional<File> file_;
  Tell tell_;
  int64_t end_;             // of what was written whole, by whomever
  bool half_left_ = false;  // what is behind it is a part of ours that could not be removed
  std::string kept_;        // what is to follow
  int64_t kept_lines_ = 0;  // in it
  int64_t lost_lines_ = 0;  // after it
  bool failing_ = false;
};

}  // namespace megalith
