#include "data/tokenizers/json_fields.h"

#include <fmt/format.h>

#include <cstring>

namespace megalith {

std::string kind_of(const simdjson::dom::element& element) {
  switch (element.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "an array of " + std::to_string(simdjson::dom::array(element).size());
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "true or false";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    default: return "a number";
  }
}

std::optional<simdjson::dom::element> member_of(const simdjson::dom::element& element, std::string_view field) {
  simdjson::dom::object object;
  if (element.get(object)) return {};
  std::optional<simdjson::dom::element> found;
  for (const auto& [key, value] : object)
    if (key == field) found = value;
  for (size_t dot = field.find('.'); !found && dot != std::string_view::npos; dot = field.find('.', dot + 1))
    if (const auto outer = member_of(element, field.substr(0, dot))) found = member_of(*outer, field.substr(dot + 1));
  return found;
}

bool says_nothing(const simdjson::dom::element& value) {
  switch (value.type()) {
    case simdjson::dom::element_type::NULL_VALUE: return true;
    case simdjson::dom::element_type::BOOL: return !value.get<bool>().value();
    case simdjson::dom::element_type::STRING: return value.get<std::string_view>().value().empty();
    case simdjson::dom::element_type::ARRAY: return simdjson::dom::array(value).size() == 0;
    case simdjson::dom::element_type::OBJECT: return simdjson::dom::object(value).size() == 0;
    default: return false;
  }
}

std::string_view text_in(const simdjson::dom::element& value, const std::string& what, std::string& bad) {
  std::string_view text;
  if (value.get(text))
    bad = fmt::format("{} is not a string but {}; write it as one", what, kind_of(value));
  else if (std::memchr(text.data(), 0, text.size()) != nullptr)
    bad = fmt::format("{} has a NUL character; remove it", what);
  return text;
}

}  // namespace megalith
