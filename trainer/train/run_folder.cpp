#include "trainer/train/run_folder.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>

#include "kernels/base/check.h"

namespace megalith {

namespace {

void lock_folder(std::optional<FolderLock>& lock, const std::string& key, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  CHECK(!error, "{} = {}: cannot create the folder: {}; choose another with {}=DIR", key, folder, error.message(), key);
  lock.emplace(folder, fmt::format("choose another with {}=DIR", key));
}

}  // namespace

RunFolder::RunFolder(const Config& config, int rank) {
  if (rank != 0) {
    spdlog::set_level(spdlog::level::off);
    return;
  }
  const std::filesystem::path folder = config.run.output;
  lock_folder(output_, "run.output", config.run.output);
  if (std::error_code absent; !std::filesystem::equivalent(folder, config.checkpoint.directory, absent))
    lock_folder(checkpoints_, "checkpoint.directory", config.checkpoint.directory);
  const std::string resolved = (folder / "config.toml").string();
  std::ofstream out(resolved, std::ios::trunc);
  out << to_toml(config);
  out.close();
  CHECK(out.good(), "cannot write {}; is the disk full or the folder read-only? Choose another with run.output=DIR",
        resolved);
  try {
    auto console = std::make_shared<spdlog::sinks::stdout_color_sink_mt>();
    console->set_pattern("%v");
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>((folder / "log.txt").string());
    file->set_pattern("%Y-%m-%d %H:%M:%S %v");
    auto logger = std::make_shared<spdlog::logger>("", spdlog::sinks_init_list{console, file});
    logger->flush_on(spdlog::level::info);
    spdlog::set_default_logger(logger);
  } catch (const spdlog::spdlog_ex& e) {
    FAIL("cannot open {}: {}", (folder / "log.txt").string(), e.what());
  }
  if (!output_->absent().empty())
    spdlog::warn("warning: {} cannot be locked ({}): nothing but your care keeps another job out of it",
                 config.run.output, output_->absent());
}

}  // namespace megalith
