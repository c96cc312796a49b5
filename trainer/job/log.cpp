#include "trainer/job/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>

#include "trainer/job/patient_file.h"

namespace megalith {

namespace {

using Logger = std::shared_ptr<spdlog::logger>;  // null: lines go nowhere

Logger logger_to(const spdlog::sink_ptr& sink, const char* pattern) {
  sink->set_pattern(pattern);
  auto logger = std::make_shared<spdlog::logger>("", sink);
  logger->flush_on(spdlog::level::info);
  return logger;
}

Logger console() { return logger_to(std::make_shared<spdlog::sinks::stdout_color_sink_mt>(), "%v"); }

// A full disk under it is said on the console.
class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  FileSink(const std::string& path, const Logger& console)
      : file_(path, true, [console](const std::string& trouble) { console->info("warning: " + trouble); }) {}

  void sync() {
    const std::lock_guard lock(mutex_);
    file_.sync();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    file_.append({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  PatientFile file_;
};

struct Loggers {
  Logger console, file;
  std::shared_ptr<FileSink> sink = {};  // of the file
};

Loggers& current() {
  static Loggers loggers{console(), nullptr, nullptr};
  return loggers;
}

}  // namespace

void log_line(const std::string& text, LogTo to) {
  if (to != LogTo::file && current().console) current().console->info(text);
  if (to != LogTo::console && current().file) current().file->info(text);
}

void log_to_console() { current() = {console(), nullptr, nullptr}; }

void log_nowhere() { current() = {}; }

void log_to_console_and(const std::string& path) {
  const Logger to_console = console();
  const auto sink = std::make_shared<FileSink>(path, to_console);
  current() = {to_console, logger_to(sink, "%Y-%m-%d %H:%M:%S %v"), sink};
}

void sync_log() {
  if (current().sink) current().sink->sync();
}

}  // namespace megalith
