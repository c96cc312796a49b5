// Formats numbers and names for the page.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

std::string escaped(const std::string& text);     // for HTML and attributes
std::string with_breaks(const std::string& key);  // escaped, with line breaks allowed after dots and bars
std::string short_number(double value);           // 12.3k, 4.27M, 1.2B
std::string grouped(int64_t number);              // 12,345
std::string number_or_dash(double value, int digits);
std::string duration(double hours);
std::string byte_count(double bytes);
std::string day_and_time(double unix_seconds);  // 2024-05-01 12:00 UTC

constexpr int num_colours = 12;  // line-0 to line-11, area-0 to area-11 in page.css
constexpr int num_dashes = 3;    // solid, dashed, dotted, for runs beyond the colours

// Returns the CSS class of a run's lines.
std::string line_class(size_t run);

}  // namespace megalith
