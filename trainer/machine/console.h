// Writes to standard output and standard error. Their reader may disappear (a closed terminal, `| head`, a full disk)
// while the process still has work to save.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace megalith {

// Makes a lost reader an error of the write instead of the end of this process.
void ignore_broken_pipes();

// Writes and flushes, from any thread. Drops text that cannot be written; console_errors() reports why.
void write_console(std::FILE* out, std::string_view text) noexcept;

// Returns the text as a terminal may show it: control characters, which file names may contain, as \\x1b. Line ends and
// tabs are kept.
std::string printable(std::string_view text);

// Returns the error that prevents writing to standard output since it first occurred, or "".
std::string standard_output_error();

// Returns "standard output cannot be written: Broken pipe", once for each of the two, or "" if there is no new error.
std::string console_errors();

}  // namespace megalith
