#include "trainer/train/run_folder.h"

#include <filesystem>

#include "trainer/job/log.h"

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
    log_nowhere();
    return;
  }
  const std::filesystem::path folder = config.run.output;
  lock_folder(output_, "run.output", config.run.output);
  if (std::error_code absent; !std::filesystem::equivalent(folder, config.checkpoint.directory, absent))
    lock_folder(checkpoints_, "checkpoint.directory", config.checkpoint.directory);
  write_file((folder / "config.toml").string(), to_toml(config), {.replace = true});
  log_to_console_and((folder / "log.txt").string());
  if (!output_->absent().empty())
    log_warning("{} cannot be locked ({}): make sure that no other job uses it", config.run.output,
                output_->absent());
}

}  // namespace megalith
