#include "data/text_windows.h"

#include <algorithm>

namespace megalith {

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
    range.file->read(at_, window.text.data(), static_cast<int64_t>(window.text.size()));
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
