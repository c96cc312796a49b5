#include "trainer/session/last_word.h"

#include <algorithm>
#include <string_view>

#include "kernels/base/files.h"

namespace megalith {

bool has_last_word(const std::string& log, int64_t begin) {
  const File file(log, File::Use::read);
  if (file.size() <= begin) return false;
  std::string tail(static_cast<size_t>(std::min<int64_t>(file.size(), 1 << 16)), '\0');
  file.read(file.size() - static_cast<int64_t>(tail.size()), tail.data(), static_cast<int64_t>(tail.size()));
  while (tail.ends_with('\n')) tail.pop_back();
  const size_t line = tail.rfind('\n') + 1;  // npos + 1 is 0
  return std::string_view(tail).substr(std::min(tail.size(), line + log_time_length)).starts_with(last_word_begin);
}

}  // namespace megalith
