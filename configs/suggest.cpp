#include "configs/suggest.h"

#include "configs/foreign_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace megalith {
namespace {

// Levenshtein's distance, with a swap of two neighbours counted as one edit.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last.back();
}

std::vector<std::string> section_names(const std::vector<Key>& keys) {
  std::vector<std::string> names;
  for (const Key& field : keys)
    if (names.empty() || names.back() != field.section) names.emplace_back(field.section);
  return names;
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t longest = 64;  // longer than any key; limits the work on hostile input
  if (name.size() > longest) return {};
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 4) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string unknown_key_message(std::string_view name, const std::vector<Key>& keys) {
  if (const std::string known = foreign_key_message(name); !known.empty())
    return fmt::format("unknown key `{}`: {}", shown(name), known);
  const size_t dot = name.find('.');
  const std::string_view section = dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
  const std::string_view key = dot == std::string_view::npos ? name : name.substr(dot + 1);

  std::vector<std::string> full_names, keys_of_section, homes;
  for (const Key& field : keys) {
    full_names.push_back(field.name());
    if (field.section == section) keys_of_section.emplace_back(field.key);
    if (field.key == key) homes.push_back(field.name());
  }
  // A right key in a wrong section is nearer than a key with a similar name; so is a right section.
  std::string best = nearest(name, homes);
  if (best.empty() && !keys_of_section.empty())
    if (const std::string near_key = nearest(key, keys_of_section); !near_key.empty())
      best = fmt::format("{}.{}", section, near_key);
  if (best.empty() && !homes.empty()) best = fmt::to_string(fmt::join(homes, "` or `"));
  if (best.empty()) best = nearest(name, full_names);

  if (!best.empty()) return fmt::format("unknown key `{}`, did you mean `{}`?", shown(name), best);
  if (!keys_of_section.empty())
    return fmt::format("unknown key `{}`; [{}] has {}", shown(name), section, fmt::join(keys_of_section, " "));
  return fmt::format("unknown key `{}`; the sections are {}", shown(name), fmt::join(section_names(keys), " "));
}

std::string unknown_section_message(std::string_view name, const std::vector<Key>& keys) {
  const std::string best = nearest(name, section_names(keys));
  if (!best.empty()) return fmt::format("unknown section [{}], did you mean [{}]?", shown(name), best);
  return fmt::format("unknown section [{}]; the sections are {}", shown(name), fmt::join(section_names(keys), " "));
}

std::string shown(std::string_view text) {
  constexpr size_t longest = 160;
  std::string escaped = toml_quoted(text.substr(0, longest));
  escaped = escaped.substr(1, escaped.size() - 2);
  return text.size() > longest ? escaped + "..." : escaped;
}

}  // namespace megalith
