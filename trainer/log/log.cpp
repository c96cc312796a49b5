#include "trainer/log/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/system/check.h"
#include "kernels/system/files.h"
#include "trainer/log/retrying_file.h"
#include "trainer/machine/console.h"
#include "trainer/session/last_word.h"

namespace megalith {

namespace {

using Logger = std::shared_ptr<spdlog::logger>;  // null drops lines

Logger logger_to(const spdlog::sink_ptr& sink, const std::string& pattern) {
  sink->set_pattern(pattern);
  auto logger = std::make_shared<spdlog::logger>("", sink);
  logger->flush_on(spdlog::level::info);
  return logger;
}

class LineSink : public spdlog::sinks::base_sink<std::mutex> {
  virtual void write(const std::string& line) = 0;
  void sink_it_(const spdlog::details::log_msg& message) final {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write({line.data(), line.size()});
  }
  void flush_() final {}
};

class ConsoleSink final : public LineSink {
  void write(const std::string& line) override { write_console(stdout, line); }
};

Logger console() { return logger_to(std::make_shared<ConsoleSink>(), "%v"); }

const std::string file_pattern = fmt::format("{} %v", log_time);

// Reports a full disk on the console, if there is one.
class FileSink final : public LineSink {
 public:
  FileSink(const std::string& path, const Logger& console)
      : file_(path, true, [console](const std::string& warning) {
          if (console) console->info("warning: " + warning);
        }) {}

  std::string sync() {
    const std::lock_guard lock(mutex_);
    return file_.sync();
  }

 private:
  void write(const std::string& line) override { file_.append(line); }
  RetryingFile file_;
};

struct Loggers {
  Logger console, file;
  std::shared_ptr<FileSink> sink = {};
  std::string path = {};  // log.txt; ranks other than 0 open it only for its last line
  int64_t begin = 0;      // size of log.txt at the start of this job
  int64_t seen = 0;       // size of log.txt after the last line of this process
  bool ended = false;     // log.txt has its last line
};

Loggers& current() {
  static Loggers loggers{console(), nullptr, nullptr};
  return loggers;
}

std::mutex file_mutex;  // guards the file: another thread may write how the run ended
std::function<void()> before_line;

int64_t size_of_file(const std::string& path) {
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(path, absent);
  return absent ? 0 : static_cast<int64_t>(bytes);
}

// Returns whether another rank has written the last line since this process wrote its last one.
bool ended_elsewhere() try {
  const Loggers& to = current();
  return size_of_file(to.path) != to.seen && has_last_word(to.path, to.begin);
} catch (const Error&) {
  return false;
}

void to_file(const std::string& text) {
  const std::lock_guard lock(file_mutex);
  current().ended = current().ended || ended_elsewhere();
  if (current().ended) return;
  current().file->info(text);
  current().seen = size_of_file(current().path);
}
}  // namespace

void log_line(const std::string& text, LogTo to) {
  if (to != LogTo::file && current().console) {
    if (before_line) before_line();
    current().console->info(printable(text));
  }
  if (!current().file) return;
  if (to != LogTo::console) to_file(text);
  if (const std::string lost = console_errors(); !lost.empty())
    to_file(fmt::format("warning: {}. The run continues, and its lines are in this file", lost));
}

void before_console_lines(std::function<void()> work) { before_line = std::move(work); }

void log_to_console() { current() = {.console = console(), .file = nullptr}; }

void log_nowhere(const std::string& path) {
  current() = {.console = nullptr, .file = nullptr, .path = path, .begin = size_of_file(path)};
}

void log_to_console_and(const std::string& path) {
  const int64_t begin = size_of_file(path);
  const Logger to_console = console();
  const auto sink = std::make_shared<FileSink>(path, to_console);
  current() = {to_console, logger_to(sink, file_pattern), sink, path, begin, begin};
}

std::string sync_log() {
  if (!current().sink) return "";
  const std::lock_guard lock(file_mutex);
  std::string warning = current().sink->sync();
  if (!warning.empty()) current().begin = std::min(current().begin, current().seen = size_of_file(current().path));
  return warning;
}

bool log_ended(const std::string& why) try {
  const std::lock_guard lock(file_mutex);
  const std::string& path = current().path;
  // Do not create a folder that this node does not see.
  if (path.empty() || !std::filesystem::exists(path)) return true;
  current().ended = true;
  if (has_last_word(path, current().begin)) return false;
  std::string line = last_word_begin + why;
  std::replace(line.begin(), line.end(), '\n', ' ');
  Logger file = current().file;
  if (!file) file = logger_to(std::make_shared<FileSink>(path, nullptr), file_pattern);
  file->info(line);
  return true;
} catch (const std::exception&) {
  return true;
}

}  // namespace megalith
