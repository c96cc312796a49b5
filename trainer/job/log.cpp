#include "trainer/job/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "kernels/base/check.h"

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

struct Loggers {
  Logger console, file;
};

Loggers& current() {
  static Loggers loggers{console(), nullptr};
  return loggers;
}

}  // namespace

void log_line(const std::string& text, LogTo to) {
  if (to != LogTo::file && current().console) current().console->info(text);
  if (to != LogTo::console && current().file) current().file->info(text);
}

void log_to_console() { current() = {console(), nullptr}; }

void log_nowhere() { current() = {}; }

void log_to_console_and(const std::string& path) {
  try {
    current() = {console(),
                 logger_to(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path), "%Y-%m-%d %H:%M:%S %v")};
  } catch (const spdlog::spdlog_ex& e) {
    FAIL("cannot open {}: {}", path, e.what());
  }
}

}  // namespace megalith
