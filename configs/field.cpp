#include "configs/field.h"

#include "kernels/system/files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace megalith {

bool NumberRange::holds(double x) const {
  const bool above_min = min_excluded ? x > min : x >= min;
  const bool below_max = max_excluded ? x < max : x <= max;
  return std::isfinite(x) && above_min && below_max;
}

std::string NumberRange::text() const {
  const auto number = [](double x) {
    return std::abs(x) <= largest_integer && x == std::floor(x) ? fmt::format("{}", static_cast<int64_t>(x))
                                                                : fmt::format("{}", x);
  };
  if (!std::isfinite(max)) return min_excluded ? "above " + number(min) : number(min) + " or more";
  return fmt::format("{} to {}{}", number(min), max_excluded ? "below " : "", number(max));
}

NumberRange between(double min, double max) { return {.min = min, .max = max}; }
NumberRange from_to_below(double min, double max) { return {.min = min, .max = max, .max_excluded = true}; }
NumberRange at_least(double min) { return {.min = min}; }
NumberRange above(double min) { return {.min = min, .min_excluded = true}; }

std::string Key::name() const { return fmt::format("{}.{}", section, key); }

std::string Key::expected() const {
  const std::string limits = unit.empty() ? range.text() : fmt::format("{}, {}", unit, range.text());
  switch (kind) {
    case Kind::integer: return fmt::format("an integer ({})", limits);
    case Kind::real: return fmt::format("a number ({})", limits);
    case Kind::boolean: return "true or false";
    case Kind::text: return may_list ? "a string or a list of strings" : "a string";
    case Kind::choice: return fmt::format("one of {}", fmt::join(choices, " "));
  }
  return {};
}

std::string value_problem(const Key& key, const Value& value) {
  // No file system accepts a NUL, and a line break would break a line of a list or the log.
  const auto breaks = [](const std::string& text) {
    return text.find_first_of(std::string("\0\n\r", 3)) != std::string::npos;
  };
  const auto problem_of = [&](const std::string& text) -> std::string {
    if (breaks(text)) return "contains a NUL character or a line break; remove it";
    // Only paths can have a scheme.
    const std::string_view scheme = scheme_of(text);
    if (scheme == "file") return "is not a path; write it without file://";
    if (!scheme.empty())
      return fmt::format(
          "is not a path, and {}:// is not supported; give a path, such as the folder where it is mounted", scheme);
    return {};
  };
  if (const auto* words = std::get_if<Words>(&value)) {
    if (words->empty()) return "is an empty list; remove the key, or add an element";
    for (const std::string& word : *words)
      if (const std::string problem = problem_of(word); !problem.empty()) return problem;
  }
  if (const auto* text = std::get_if<std::string>(&value))
    if (const std::string problem = problem_of(*text); !problem.empty()) return problem;
  const bool integer = std::holds_alternative<int64_t>(value);
  if (!integer && !std::holds_alternative<double>(value)) return {};
  const double number = integer ? static_cast<double>(std::get<int64_t>(value)) : std::get<double>(value);
  return key.range.holds(number) ? "" : fmt::format("is out of range, expected {}", key.expected());
}

std::string toml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\u{:04X}", byte);
    else
      out += c;
  }
  return out + '"';
}

Value value_of_lines(const std::string& text) {
  if (text.find('\n') == std::string::npos) return text;
  Words words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string lines_of_value(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  std::string lines;
  for (const std::string& word : std::get<Words>(value)) lines += word + "\n";
  return lines;
}

std::string toml_text(const Value& value) {
  struct Writer {
    std::string operator()(int64_t x) const { return fmt::format("{}", x); }
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(const std::string& x) const { return toml_quoted(x); }
    std::string operator()(const Words& x) const {
      std::string list;
      for (const std::string& word : x) list += (list.empty() ? "" : ", ") + toml_quoted(word);
      return "[" + list + "]";
    }
    std::string operator()(double x) const {
      const std::string digits = fmt::format("{}", x);  // the shortest that reads back to x
      return digits.find_first_of(".en") == std::string::npos ? digits + ".0" : digits;  // en: exponent, inf, nan
    }
  };
  return std::visit(Writer{}, value);
}

}  // namespace megalith
