#include "trainer/report/words.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>

namespace megalith {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  return safe;
}

std::string with_breaks(const std::string& key) {
  std::string text;
  for (const char c : key) text += escaped(std::string(1, c)) + (c == '.' || c == '_' || c == '/' ? "<wbr>" : "");
  return text;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  for (const auto& [unit, letter] : {std::pair(1e12, "T"), {1e9, "B"}, {1e6, "M"}, {1e3, "k"}})
    if (size >= 0.9995 * unit && (unit > 1e3 || size >= 9995)) return fmt::format("{:.3g}{}", value / unit, letter);
  return size >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string number_or_dash(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "–";
}

std::string duration(double hours) {
  if (hours >= 48) return fmt::format("{:.1f}\u00a0days", hours / 24);
  if (hours >= 1) return fmt::format("{:.2g}\u00a0h", hours);
  return hours * 60 >= 1 ? fmt::format("{:.3g}\u00a0min", hours * 60) : fmt::format("{:.3g}\u00a0s", hours * 3600);
}

std::string byte_count(double bytes) {
  return bytes >= 1 << 30 ? fmt::format("{:.2f} GiB", bytes / (1 << 30)) : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

std::string day_and_time(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm day{};
  char text[64] = "";
  gmtime_r(&seconds, &day);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &day);
  return text;
}

std::string line_class(size_t run) {
  const size_t dash = run / num_colours % num_dashes;
  return fmt::format("line-{}{}", run % num_colours, dash > 0 ? fmt::format(" dash-{}", dash) : "");
}

}  // namespace megalith
