#include "trainer/checkpointing/state_reader.h"

#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

int64_t StateReader::count(const char* key, std::optional<int64_t> absent) const {
  const nlohmann::json* value = find(key);
  CHECK(value || absent, "checkpoint {}: its manifest has no {}; was it written by another program?", path_, key);
  if (!value) return *absent;
  check_number(key, *value);
  try {
    return whole_number(*value);
  } catch (const nlohmann::json::exception& e) {
    FAIL("checkpoint {}: {} in its manifest: {}", path_, key, e.what());
  }
}

double StateReader::number(const char* key, double absent) const {
  const nlohmann::json* value = find(key);
  if (!value) return absent;
  check_number(key, *value);
  return value->get<double>();
}

std::vector<double> StateReader::numbers(const char* key, Sign sign) const {
  std::vector<double> all;
  const nlohmann::json* values = find(key);
  if (!values) return all;
  CHECK(values->is_array(), "checkpoint {}: {} in its manifest is not a list of numbers", path_, key);
  for (const nlohmann::json& value : *values) {
    if (sign == Sign::positive || !value.is_number()) check_number(key, value);
    all.push_back(value.get<double>());
  }
  return all;
}

std::vector<std::pair<int64_t, int64_t>> StateReader::ranges(const char* key, int64_t most) const {
  std::vector<std::pair<int64_t, int64_t>> all;
  const nlohmann::json* values = find(key);
  if (!values) return all;
  const auto check = [&](bool right, const nlohmann::json& value) {
    CHECK(right,
          "checkpoint {}: {} in its manifest is {}; expected a list of pairs [first, last] of steps up to {}, "
          "ascending",
          path_, key, json_text(value), most);
  };
  check(values->is_array(), *values);
  for (const nlohmann::json& value : *values) {
    check(value.is_array() && value.size() == 2, value);
    const int64_t end = all.empty() ? -1 : all.back().second;
    try {
      all.emplace_back(whole_number(value[0]), whole_number(value[1]));
    } catch (const nlohmann::json::exception&) {
      check(false, value);
    }
    check(end < all.back().first && all.back().first <= all.back().second && all.back().second <= most, value);
  }
  return all;
}

const nlohmann::json* StateReader::find(const char* key) const {
  const auto found = state_.find(key);
  return found == state_.end() ? nullptr : &*found;
}

void StateReader::check_number(const char* key, const nlohmann::json& value) const {
  CHECK(value.is_number() && value >= 0, "checkpoint {}: {} in its manifest is {}; expected a number, 0 or more", path_,
        key, value.is_number() ? json_text(value) : value.type_name());
}

}  // namespace megalith
