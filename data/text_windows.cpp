#include "data/text_windows.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/base/check.h"

namespace megalith {

TextFile::TextFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  CHECK(fd_ >= 0, "cannot open the text {}: {}; check the path", path, std::strerror(errno));
  struct stat info {};
  const bool plain = ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
  size_ = plain ? info.st_size : 0;
  if (size_ > 0) return;
  ::close(fd_);
  CHECK(plain, "the text {} is not a plain file; write it to one first", path);
  FAIL("the text {} is empty (0 bytes); leave it out", path);
}

TextFile::~TextFile() { ::close(fd_); }

void TextFile::read(int64_t begin, std::string& text) const {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        ::pread(fd_, text.data() + done, text.size() - done, static_cast<off_t>(begin) + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    CHECK(n >= 0, "cannot read {} at byte {}: {}", path_, begin, std::strerror(errno));
    CHECK(n > 0, "{} had {} bytes when it was opened and ends earlier now; do not write to it meanwhile", path_, size_);
    done += static_cast<size_t>(n);
  }
}

TextWindows::TextWindows(std::vector<TextRange> ranges, int64_t window_bytes, LastCut last_cut)
    : ranges_(std::move(ranges)), window_bytes_(window_bytes), last_cut_(std::move(last_cut)) {
  std::erase_if(ranges_, [](const TextRange& range) { return range.size() == 0; });
  if (!ranges_.empty()) at_ = ranges_.front().begin;
}

bool TextWindows::next(TextWindow& window) {
  if (range_ == ranges_.size()) return false;
  const TextRange& range = ranges_[range_];
  for (int64_t bytes = window_bytes_;; bytes *= 2) {
    const int64_t left = range.end - at_;
    window.ends_range = bytes >= left;
    window.text.resize(static_cast<size_t>(std::min(bytes, left)));
    range.file->read(at_, window.text);
    if (window.ends_range) {
      range_++;
      if (range_ < ranges_.size()) at_ = ranges_[range_].begin;
      return true;
    }
    const size_t cut = last_cut_(window.text);
    if (cut == 0) continue;
    window.text.resize(cut);
    at_ += static_cast<int64_t>(cut);
    return true;
  }
}

}  // namespace megalith
