// JSON and CBOR, to text and back. The library's readers and writers are templates that take seconds to compile; they
// are compiled once here, and other files only build and inspect values.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace megalith {

// Throws nlohmann::json::parse_error, with the place, if the text is not JSON or nests more than deepest_json values:
// inspecting, copying and printing a value recurse.
nlohmann::json parse_json(std::string_view text);
// As parse_json(), but also throws if an object has a name twice; parse_json() keeps the last value.
nlohmann::json parse_json_of_single_names(std::string_view text);
constexpr int deepest_json = 100;

// Calls `use` with each object of a text that has one object a line, as appended by a process that may be killed. An
// exception of parsing or `use`, Error or nlohmann::json::exception, becomes an Error with path and line. An
// unterminated last line that is not JSON was cut off by a kill, and is skipped.
void for_each_json_line(std::string_view text, const std::string& path,
                        const std::function<void(const nlohmann::json& object)>& use);

// Returns whether a value is empty: null, false, or an empty list, object or string.
bool says_nothing(const nlohmann::json& value);

// Returns the first key of an object that is unknown and whose value is not empty; "" if there is no such key. Files of
// other programs are read by known keys only, since an unknown key may change the meaning of the others.
std::string unknown_key(const nlohmann::json& object, const std::function<bool(const std::string& key)>& is_known);

// Returns the value, or throws nlohmann::json::type_error: the library iterates over a scalar as if it were a list.
const nlohmann::json& as_list(const nlohmann::json& value);
const nlohmann::json& as_object(const nlohmann::json& value);

// Returns a whole number from `least` to `most`, or throws nlohmann::json::exception: the library converts others.
int64_t whole_number(const nlohmann::json& value, int64_t least = std::numeric_limits<int64_t>::min(),
                     int64_t most = std::numeric_limits<int64_t>::max());
// As above, for numbers that need not be whole.
double real_number(const nlohmann::json& value, double least = std::numeric_limits<double>::lowest(),
                   double most = std::numeric_limits<double>::max());

// Prints on one line, or with `indent` blanks a level. Throws nlohmann::json::type_error for bytes that are not UTF-8.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// Prints on one line, with U+FFFD for bytes that are not UTF-8.
std::string json_text_of_bytes(const nlohmann::ordered_json& value);

// Unlike JSON, CBOR has infinity, NaN and strings of any bytes.
std::string to_cbor(const nlohmann::json& value);
nlohmann::json from_cbor(std::string_view bytes);

}  // namespace megalith
