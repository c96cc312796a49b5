// Standard output and standard error, whose reader may go away: a terminal that is closed, `| head`, a disk that is
// full. Whoever has work to save goes on then.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace megalith {

// From here on a reader that is gone is an error of the write, and not the end of this process.
void ignore_broken_pipes();

// Writes it at once. What cannot be written is dropped, and console_errors() has why. From any thread.
void write_console(std::FILE* out, std::string_view text) noexcept;

// "standard output cannot be written: Broken pipe", of each of the two once; empty: there is nothing new.
std::string console_errors();

}  // namespace megalith
