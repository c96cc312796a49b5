// The last line of a run in its log.txt, which tells how it ended (log/log.h).
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

constexpr const char* last_word_begin = "ended: ";
// The time at the beginning of a line, in std::strftime's format, and its length with the space after it.
constexpr const char* log_time = "%Y-%m-%d %H:%M:%S";
constexpr size_t log_time_length = 20;

// Returns whether a run has begun this file: it is empty, or its first line begins with a time, or with zeros that a
// power failure has left.
bool begins_as_log(const std::string& log);

// Returns whether the last line written since `begin` (bytes) is such a line. Error: the file cannot be read.
bool has_last_word(const std::string& log, int64_t begin);

}  // namespace megalith
