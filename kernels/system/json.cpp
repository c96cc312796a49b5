#include "kernels/system/json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "kernels/system/check.h"

namespace megalith {

namespace {

// Checks the nesting of brackets outside strings, in a text that is JSON up to there.
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

void expect_kind(const nlohmann::json& value, bool is_one, const char* kind) {
  if (!is_one)
    throw nlohmann::json::type_error::create(302, fmt::format("{} is not {}", value.type_name(), kind), nullptr);
}

template <class Number>
Number within(Number number, Number least, Number most) {
  if (number >= least && number <= most) return number;
  throw nlohmann::json::out_of_range::create(401, fmt::format("{} is not from {} to {}", number, least, most), nullptr);
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  check_depth(text);
  return nlohmann::json::parse(text);
}

nlohmann::json parse_json_of_single_names(std::string_view text) {
  check_depth(text);
  std::vector<std::set<std::string>> names;  // names seen in each open object
  const auto look = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key && !names.back().insert(parsed.get<std::string>()).second)
      throw nlohmann::json::other_error::create(
          502, fmt::format("an object has the name \"{}\" twice", parsed.get<std::string>()), nullptr);
    return true;
  };
  return nlohmann::json::parse(text, look);
}

void for_each_json_line(std::string_view text, const std::string& path,
                        const std::function<void(const nlohmann::json&)>& use) {
  for (int64_t number = 1; !text.empty(); number++) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    bool parsed = false;
    try {
      const nlohmann::json object = parse_json(line);
      parsed = true;
      use(as_object(object));
    } catch (const nlohmann::json::exception& e) {
      if (!parsed && end == std::string_view::npos) return;
      FAIL("{}, line {} is damaged: {}; remove the line, or restore the file", path, number, e.what());
    } catch (const Error& e) {
      FAIL("{}, line {}: {}", path, number, e.what());
    }
  }
}

bool says_nothing(const nlohmann::json& value) {
  return value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
}

std::string unknown_key(const nlohmann::json& object, const std::function<bool(const std::string& key)>& is_known) {
  for (const auto& [key, value] : object.items())
    if (!says_nothing(value) && !is_known(key)) return key;
  return "";
}

const nlohmann::json& as_list(const nlohmann::json& value) {
  expect_kind(value, value.is_array(), "a list");
  return value;
}

const nlohmann::json& as_object(const nlohmann::json& value) {
  expect_kind(value, value.is_object(), "an object");
  return value;
}

int64_t whole_number(const nlohmann::json& value, int64_t least, int64_t most) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}))
    throw nlohmann::json::type_error::create(
        302, fmt::format("{} is not a whole number of 64 bits", value.is_number() ? value.dump() : value.type_name()),
        nullptr);
  return within(value.get<int64_t>(), least, most);
}

double real_number(const nlohmann::json& value, double least, double most) {
  expect_kind(value, value.is_number(), "a number");
  return within(value.get<double>(), least, most);
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
