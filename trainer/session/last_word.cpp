#include "trainer/session/last_word.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "kernels/system/files.h"

namespace megalith {

bool begins_as_log(const std::string& log) {
  const File file(log, File::Use::read);
  std::string begin(static_cast<size_t>(std::min<int64_t>(file.size(), log_time_length)), '\0');
  file.read(0, begin.data(), static_cast<int64_t>(begin.size()));
  constexpr std::string_view form = "dddd-dd-dd dd:dd:dd ";
  const auto fits = [](char c, char expected) {
    return expected == 'd' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == expected;
  };
  return begin.find_first_not_of('\0') == std::string::npos || std::ranges::equal(begin, form, fits);
}

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
