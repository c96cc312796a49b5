// What a job tells its user while it runs: lines on the console and, once a run has a folder, in its log.txt. spdlog
// writes them; only log.cpp knows that, because each file that does compiles fmt's formatter anew. A console whose
// reader is gone (session/console.h) ends nothing; log.txt says it once.
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

// Called before each line on the console, on the thread that says it, so that a bar there makes room. Empty: nothing.
void before_console_lines(std::function<void()> work);

// Where lines go from now on. At first they go to the console.
void log_to_console();
// On ranks other than 0, whose log_ended goes to that file, if one is named.
void log_nowhere(const std::string& path = {});
// To both, in the file with the time and after what it holds, whatever its disk does later (retrying_file.h). Error:
// the file cannot be opened.
void log_to_console_and(const std::string& path);
// What was said so far is on the disk of the file. Returns a sentence where the file had been removed
// (retrying_file.h).
std::string sync_log();

// The last line of a run in its log.txt says how it ended: "done: ..." by log_info, or "ended: ..." by this, in one
// line. Where neither is the last, the run goes on, or nobody was left to say it. From any rank and any thread; no rank
// says another line there, unless it is writing it at that moment. Not on the console. Once a run: false, and nothing
// written, where the file ends with such a line. No error, for it is said when one has been met.
bool log_ended(const std::string& why);

}  // namespace megalith
