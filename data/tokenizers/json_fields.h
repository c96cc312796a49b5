// Fields of a line of JSON, as simdjson parses it. Inside data/ only.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

namespace megalith {

// "a string", "an array of 3".
std::string kind_of(const simdjson::dom::element& element);

// Returns a member of an object; nothing if the element is none or has none of this name. The last of several members
// of one name counts. A dotted name means nested objects, unless a member has that name.
std::optional<simdjson::dom::element> member_of(const simdjson::dom::element& element, std::string_view field);

// Returns whether a value says nothing: null, false, or an empty list, object or text.
bool says_nothing(const simdjson::dom::element& value);

// Returns the text of a value; or sets `bad`, which begins with `what`.
std::string_view text_in(const simdjson::dom::element& value, const std::string& what, std::string& bad);

}  // namespace megalith
