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

using Logger = std::shared_ptr<spdlog::logger>;  // null: lines go nowhere

Logger logger_to(const spdlog::sink_ptr& sink, const std::string& pattern) {
  sink->set_pattern(pattern);
  auto logger = std::make_shared<spdlog::logger>("", sink);
  logger->flush_on(spdlog::level::info);
  return logger;
}

class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_console(stdout, {line.data(), line.size()});
  }
  void flush_() override {}
};

Logger console() { return logger_to(std::make_shared<ConsoleSink>(), "%v"); }

const std::string file_pattern = fmt::format("{} %v", log_time);

// A full disk under it is said on the console, if there is one.
class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  FileSink(const std::string& path, const Logger& console)
      : file_(path, true, [console](const std::string& trouble) {
          if (console) console->info("warning: " + trouble);
        }) {}

  std::string sync() {
    const std::lock_guard lock(mutex_);
    return file_.sync();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    file_.append({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  RetryingFile file_;
};

struct Loggers {
  Logger console, file;
  std::shared_ptr<FileSink> sink = {};  // of the file
  std::string path = {};                // of the run's log, which ranks other than 0 open for its last line only
  int64_t begin = 0;                    // its size before this start of the run
  int64_t seen = 0;                     // its size after the last line from here
  bool ended = false;                   // it has its last line
};

Loggers& current() {
  static Loggers loggers{console(), nullptr, nullptr};
  return loggers;
}

// Held by who writes to the file, for the thread that says how the run ended may be another.
std::mutex& file_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::function<void()>& before_line() {
  static std::function<void()> work;
  return work;
}

int64_t size_of_file(const std::string& path) {
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(path, absent);
  return absent ? 0 : static_cast<int64_t>(bytes);
}

// Whether another rank has said the last line there. Looks where the file has grown since the last line from here.
bool ended_elsewhere() try {
  const Loggers& to = current();
  return size_of_file(to.path) != to.seen && has_last_word(to.path, to.begin);
} catch (const Error&) {
  return false;
}

void to_file(const std::string& text) {
  const std::lock_guard lock(file_mutex());
  current().ended = current().ended || ended_elsewhere();
  if (current().ended) return;
  current().file->info(text);
  current().seen = size_of_file(current().path);
}
}  // namespace

void log_line(const std::string& text, LogTo to) {
  if (to != LogTo::file && current().console) {
    if (before_line()) before_line()();
    current().console->info(text);
  }
  if (!current().file) return;
  if (to != LogTo::console) to_file(text);
  if (const std::string lost = console_errors(); !lost.empty())
    to_file(fmt::format("warning: {}. The run goes on, and its lines are in this file", lost));
}

void before_console_lines(std::function<void()> work) { before_line() = std::move(work); }

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
  const std::lock_guard lock(file_mutex());
  std::string trouble = current().sink->sync();
  if (!trouble.empty()) current().begin = std::min(current().begin, current().seen = size_of_file(current().path));
  return trouble;
}

bool log_ended(const std::string& why) try {
  const std::lock_guard lock(file_mutex());
  const std::string& path = current().path;
  // A folder that this node does not see is not made here.
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
