// Writes a job's messages to the console and, once a run has a folder, to its log.txt. Only log.cpp includes spdlog,
// because each file that does compiles fmt's formatter anew. A console without a reader (machine/console.h) does not
// end a run; log.txt mentions it once.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

namespace megalith {

enum class LogTo { all, console, file };

void log_line(const std::string& text, LogTo to = LogTo::all);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(fmt::vformat(format, fmt::make_format_args(args...)));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line("warning: " + fmt::vformat(format, fmt::make_format_args(args...)));
}

// Sets a function that is called before each line on the console, on the writing thread, so that a progress bar makes
// room.
void before_console_lines(std::function<void()> work);

// These choose where later lines go. At first they go to the console.
void log_to_console();
// Drops lines: for ranks other than 0. `path` is the file that log_ended() appends to.
void log_nowhere(const std::string& path = {});
// Writes to both, and appends to the file with times (retrying_file.h). Throws Error if the file cannot be opened.
void log_to_console_and(const std::string& path);
// Flushes the file to disk. Returns a sentence if the file had been removed (retrying_file.h), else "".
std::string sync_log();

// Appends "ended: ..." to the run's log.txt, in one line and not on the console. The last line of a run is this, or
// "done: ..." by log_info; otherwise the run is still going or was killed. Any thread of any rank may call this, and no
// rank writes a later line. Returns false, and writes nothing, if the file already has its last line. Never throws.
bool log_ended(const std::string& why);

}  // namespace megalith
