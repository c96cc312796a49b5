#include "kernels/base/json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace megalith {

namespace {

// Of a text that is JSON up to there: brackets that are not in strings.
void check_depth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (in_string && c == '\\') i++;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == '[' || c == '{') depth++;
    if (c == ']' || c == '}') depth--;
    if (depth > deepest_json)
      throw nlohmann::json::parse_error::create(
          101, i + 1, fmt::format("values are nested more than {} deep", deepest_json), nullptr);
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  check_depth(text);
  return nlohmann::json::parse(text);
}

int64_t whole_number(const nlohmann::json& value) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}))
    throw nlohmann::json::type_error::create(
        302, fmt::format("{} is no whole number of 64 bits", value.is_number() ? value.dump() : value.type_name()),
        nullptr);
  return value.get<int64_t>();
}

std::string json_text(const nlohmann::json& value, int indent) { return value.dump(indent); }
std::string json_text(const nlohmann::ordered_json& value, int indent) { return value.dump(indent); }

std::string json_text_of_bytes(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_cbor(const nlohmann::json& value) {
  std::string bytes;
  nlohmann::json::to_cbor(value, bytes);
  return bytes;
}

nlohmann::json from_cbor(std::string_view bytes) { return nlohmann::json::from_cbor(bytes); }

}  // namespace megalith
