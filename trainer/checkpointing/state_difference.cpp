#include "trainer/checkpointing/state_difference.h"

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "configs/config.h"
#include "kernels/system/json.h"

namespace megalith {
namespace {

using nlohmann::json;

const std::set<std::string> not_compared = {"written_by", "tokenizer_from_here", "config", "init_from"};

std::string shown_value(const json* value) {
  constexpr size_t most = 60;
  if (!value) return "absent";
  const std::string text = json_text(*value);
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

bool is_compared(const std::string& path, const std::string& key) {
  if (path.empty()) return key != "tokenizer" && !not_compared.contains(key);
  return key != "name" && key != "left_out";  // a source's files may move
}

void compare(const std::string& path, const json* a, const json* b, std::vector<std::string>& lines) {
  if (a && b && *a == *b) return;
  if (a && b && a->is_object() && b->is_object()) {
    std::map<std::string, std::array<const json*, 2>> members;
    for (const auto& [key, value] : a->items()) members[key][0] = &value;
    for (const auto& [key, value] : b->items()) members[key][1] = &value;
    for (const auto& [key, sides] : members)
      if (is_compared(path, key)) compare(path.empty() ? key : path + "." + key, sides[0], sides[1], lines);
    return;
  }
  if (a && b && a->is_array() && b->is_array() && a->size() == b->size()) {
    std::vector<std::string> inner;
    for (size_t i = 0; i < a->size(); i++) compare(fmt::format("{}[{}]", path, i), &(*a)[i], &(*b)[i], inner);
    constexpr size_t most = 3;
    for (size_t i = 0; i < std::min(most, inner.size()); i++) lines.push_back(inner[i]);
    if (inner.size() > most) lines.push_back(fmt::format("{}: {} more", path, inner.size() - most));
    return;
  }
  lines.push_back(fmt::format("{}: {} | {}", path, shown_value(a), shown_value(b)));
}

// Throws Error if this program cannot read the configuration.
std::map<std::string, std::string> keys_of(const Manifest& manifest) {
  const auto text = manifest.state.find("config");
  if (text == manifest.state.end() || !text->is_string()) return {};
  return key_values(parse_config(text->get<std::string>(), "its configuration"));
}

}  // namespace

StateDifference compare_states(const Manifest& a, const Manifest& b) {
  StateDifference found;
  if (a.step != b.step) found.state.push_back(fmt::format("step: {} | {}", a.step, b.step));
  compare("", &a.state, &b.state, found.state);
  try {
    const std::map<std::string, std::string> of_a = keys_of(a), of_b = keys_of(b);
    for (const auto& [key, value] : of_a.empty() ? of_b : of_a) {
      const auto here = of_a.find(key), there = of_b.find(key);
      const std::string left = here == of_a.end() ? "absent" : here->second,
                        right = there == of_b.end() ? "absent" : there->second;
      if (left != right) found.config.push_back(fmt::format("{}: {} | {}", key, left, right));
    }
  } catch (const Error& e) {
    found.config.push_back(fmt::format("not compared: {}", e.what()));
  }
  return found;
}

}  // namespace megalith
