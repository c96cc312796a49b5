// Writes to standard output and standard error, whose reader may go away (a closed terminal, `| head`, a full disk)
// while the process still has work to save.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace megalith {

// Makes a lost reader an error of the write instead of the end of this process.
void ignore_broken_pipes();

// Writes and flushes, from any thread. Drops what cannot be written; console_errors() says why.
void write_console(std::FILE* out, std::string_view text) noexcept;

// Returns the text as a terminal may show it: control characters, which names in others' files may have, as \\x1b. Line
// ends and tabs stay.
std::string printable(std::string_view text);

// Returns why standard output could not be written, from the first time on; "" if it could.
std::string standard_output_error();

// Returns "standard output cannot be written: Broken pipe", once for each of the two, or "" where nothing is new.
std::string console_errors();

}  // namespace megalith
