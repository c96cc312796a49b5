// JSON with one thing in it altered: what a reader must survive.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace megalith::test {

// `good` with every value in it, and itself, replaced by others in turn, or taken away. Of a list, the first and the
// last.
inline std::vector<nlohmann::json> altered(const nlohmann::json& good) {
  using nlohmann::json;
  std::vector<json> all;
  for (const char* other : {"null", "true", "\"x\"", "[]", "{}", "-1", "0", "0.5", "1e308", "-1e308", "5e-324",
                            "9223372036854775807", "-9223372036854775808", "18446744073709551615"})
    all.push_back(json::parse(other));
  const auto inside = [&](const auto& key, const json& value) {
    for (json& other : altered(value)) {
      all.push_back(good);
      all.back()[key] = std::move(other);
    }
    all.push_back(good);
    all.back().erase(key);
  };
  if (good.is_object())
    for (const auto& [key, value] : good.items()) inside(key, value);
  if (good.is_array() && !good.empty()) {
    inside(size_t{0}, good.front());
    if (good.size() > 1) inside(good.size() - 1, good.back());
  }
  return all;
}

}  // namespace megalith::test
