// Fields of a line of JSON, as simdjson parses it. Inside data/ only.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

namespace megalith {

// Describes an element's type: "a string", "an array of 3".
std::string kind_of(const simdjson::dom::element& element);

// Returns a member of an object; nullopt if the element is not an object or has no member of this name. The last of
// several members with the same name counts. A dotted name means nested objects, unless a member has that name.
std::optional<simdjson::dom::element> member_of(const simdjson::dom::element& element, std::string_view field);

// Returns whether a value is empty: null, false, or an empty list, object or string.
bool says_nothing(const simdjson::dom::element& value);

// Returns the text of a value; or sets `bad` to a description of its error that begins with `what`.
std::string_view text_in(const simdjson::dom::element& value, const std::string& what, std::string& bad);

}  // namespace megalith
