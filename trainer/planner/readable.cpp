#include "trainer/planner/readable.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <utility>

namespace megalith {

std::string readable(double x) {
  const double size = std::abs(x);
  if (!std::isfinite(x) || (size < 999.95 && (size >= 1e-3 || size == 0))) return fmt::format("{:.4g}", x);
  if (size < 1) return fmt::format("{:.{}f}", x, 3 - static_cast<int>(std::floor(std::log10(size))));
  std::string digits = fmt::format("{:.0f}", x);
  const auto first = static_cast<int64_t>(x < 0);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

namespace {

// Returns the number below 1000 and the name of its unit.
std::pair<std::string, const char*> in_thousands(double x, std::span<const char* const> names) {
  size_t name = 0;
  for (; std::abs(x) >= 999.95 && name + 1 < names.size(); name++) x /= 1000;
  return {readable(x), names[name]};
}

}  // namespace

std::string in_words(double x) {
  static constexpr const char* names[] = {"", "thousand", "million", "billion", "trillion"};
  const auto [number, thousands] = in_thousands(x, names);
  return number + (*thousands ? " " : "") + thousands;
}

std::string with_prefix(double x, const std::string& unit) {
  static constexpr const char* names[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  const auto [number, thousands] = in_thousands(x, names);
  return number + " " + thousands + unit;
}

}  // namespace megalith
