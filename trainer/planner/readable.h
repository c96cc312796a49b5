// Formats numbers for people, without powers of ten.
#pragma once

#include <string>

namespace megalith {

// Keeps four digits, or all before the point, in groups: "0.00001948", "5.577", "47,008".
std::string readable(double x);

std::string in_words(double x);                              // "300 billion"
std::string with_prefix(double x, const std::string& unit);  // "47.39 PFLOP"

}  // namespace megalith
