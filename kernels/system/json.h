// JSON and CBOR, to text and back. The library's readers and writers are templates that take seconds to compile; here
// they are compiled once, and elsewhere objects are only built and looked into.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace megalith {

// Throws nlohmann::json::parse_error, which says where the text stops being JSON, or nests more than deepest_json
// values: what looks into a value, copies or prints it calls itself for each.
nlohmann::json parse_json(std::string_view text);
constexpr int deepest_json = 100;

// Of a text with an object a line, as a process appends them that may be killed: `use` gets each. What parsing or `use`
// throws, an Error or nlohmann::json::exception, goes on as an Error with path and line. A last line that nothing ends
// and that is no JSON was cut off by a kill, and is passed over.
void for_each_json_line(std::string_view text, const std::string& path,
                        const std::function<void(const nlohmann::json& object)>& use);

// The value itself, or nlohmann::json::type_error: the library goes through what is no list or object as if it were
// one.
const nlohmann::json& as_list(const nlohmann::json& value);
const nlohmann::json& as_object(const nlohmann::json& value);

// A whole number from `least` to `most`, or nlohmann::json::exception: elsewhere the library takes a fraction, "true"
// or 2^64 - 1 for one.
int64_t whole_number(const nlohmann::json& value, int64_t least = std::numeric_limits<int64_t>::min(),
                     int64_t most = std::numeric_limits<int64_t>::max());
// The same of numbers that need not be whole.
double real_number(const nlohmann::json& value, double least = std::numeric_limits<double>::lowest(),
                   double most = std::numeric_limits<double>::max());

// On one line, or with so many blanks a level. Bytes that are not UTF-8 throw nlohmann::json::type_error.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// On one line, with U+FFFD for bytes that are not UTF-8.
std::string json_text_of_bytes(const nlohmann::ordered_json& value);

// Unlike JSON's text, CBOR has infinity, NaN and any bytes as a string.
std::string to_cbor(const nlohmann::json& value);
nlohmann::json from_cbor(std::string_view bytes);

}  // namespace megalith
