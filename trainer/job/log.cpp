#include "trainer/job/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <vector>

#include "kernels/base/check.h"

namespace megalith {

namespace {

using Logger = std::shared_ptr<spdlog::logger>;

Logger logger_to(const std::vector<spdlog::sink_ptr>& sinks) {
  auto logger = std::make_shared<spdlog::logger>("", sinks.begin(), sinks.end());
  logger->flush_on(spdlog::level::info);
  return logger;
}

spdlog::sink_ptr console() {
  auto sink = std::make_shared<spdlog::sinks::stdout_color_sink_mt>();
  sink->set_pattern("%v");
  return sink;
}

Logger& current() {
  static Logger logger = logger_to({console()});
  return logger;
}

}  // namespace

void log_line(const std::string& text) { current()->info(text); }

void log_to_console() { current() = logger_to({console()}); }

void log_nowhere() { current() = logger_to({}); }

void log_to_console_and(const std::string& path) {
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    file->set_pattern("%Y-%m-%d %H:%M:%S %v");
    current() = logger_to({console(), file});
  } catch (const spdlog::spdlog_ex& e) {
    FAIL("cannot open {}: {}", path, e.what());
  }
}

}  // namespace megalith
