// Text files too large for memory, read front to back in windows that end where a cut changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/files.h"

namespace megalith {

// Bytes [begin, end) of a file. Refers to the file, which must outlive it.
struct TextRange {
  const File* file;
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

struct TextWindow {
  std::string text;
  bool ends_range = false;
};

// Goes through ranges in order. A window has window_bytes or less, except where the text gives no place to cut: there
// it grows, twofold each time. For one thread at a time.
class TextWindows {
 public:
  using LastCut = std::function<size_t(std::string_view)>;  // as Tokenizer::last_cut

  TextWindows(std::vector<TextRange> ranges, int64_t window_bytes, LastCut last_cut);
  bool next(TextWindow& window);  // false when there is no more

 private:
  std::vector<TextRange> ranges_;
  int64_t window_bytes_;
  LastCut last_cut_;
  size_t range_ = 0;
  int64_t at_ = 0;  // in the range's file
};

}  // namespace megalith
