#include "configs/step_range.h"

#include <charconv>
#include <string_view>

namespace megalith {

std::optional<StepRange> step_range(const std::string& text) {
  const auto number = [](std::string_view digits) -> std::optional<int64_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) return {};
    return value;
  };
  const std::string_view all = text;
  const size_t dash = all.find('-');
  const std::optional<int64_t> first = number(all.substr(0, dash));
  const std::optional<int64_t> last = dash == all.npos ? first : number(all.substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first) return {};
  return StepRange{*first, *last};
}

}  // namespace megalith
