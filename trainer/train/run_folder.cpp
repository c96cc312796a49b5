#include "trainer/train/run_folder.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <filesystem>

namespace megalith {

namespace {

void lock_folder(std::optional<FolderLock>& lock, const std::string& key, const std::string& folder) {
  const std::string remedy = fmt::format("choose another with {}=DIR", key);
  make_folders(folder, fmt::format("it is {} = {}; {}", key, folder, remedy));
  lock.emplace(folder, remedy);
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
  write_file((folder / "config.toml").string(), to_toml(config), {.replace = true});
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
    spdlog::warn("warning: {} cannot be locked ({}): make sure that no other job uses it", config.run.output,
                 output_->absent());
}

}  // namespace megalith
