#include "trainer/train/run_folder.h"

#include <filesystem>

#include "trainer/checkpointing/weight_source.h"
#include "trainer/job/log.h"

namespace megalith {

namespace {

void lock_folder(std::optional<FolderLock>& lock, const std::string& key, const std::string& folder) {
  const std::string remedy = fmt::format("choose another with {}=DIR", key);
  make_folders(folder, fmt::format("it is {} = {}; {}", key, folder, remedy));
  lock.emplace(folder, remedy);
}

bool holds(const std::string& folder, const Tokenizer& tokenizer) try {
  return load_tokenizer(folder)->content() == tokenizer.content();
} catch (const Error&) {
  return false;
}

void keep_tokenizer(const std::string& folder, const Tokenizer& tokenizer) {
  if (holds(folder, tokenizer)) return;
  const std::string partial = folder + ".partial";
  remove_all(partial);
  make_folders(partial, "choose another folder with run.output=DIR");
  tokenizer.save(partial);
  if (std::filesystem::exists(folder)) {
    std::string kept;
    for (int k = 1; kept.empty() || std::filesystem::exists(kept); k++) kept = fmt::format("{}.earlier-{}", folder, k);
    move_file(folder, kept);
    log_info("{} held another tokenizer, which is now {}", folder, kept);
  }
  move_file(partial, folder);
}

}  // namespace

std::string config_to_keep(Config config) {
  if (config.checkpoint.directory == config.run.output + "/checkpoints") config.checkpoint.directory.clear();
  return to_toml(config);
}

RunFolder::RunFolder(const Config& config, const Tokenizer* tokenizer, int rank) {
  const std::filesystem::path folder = config.run.output;
  const std::string log = (folder / "log.txt").string();
  if (rank != 0) {
    log_nowhere(log);
    return;
  }
  lock_folder(output_, "run.output", config.run.output);
  if (std::error_code absent; !std::filesystem::equivalent(folder, config.checkpoint.directory, absent))
    lock_folder(checkpoints_, "checkpoint.directory", config.checkpoint.directory);
  write_file((folder / "config.toml").string(), config_to_keep(config), {.replace = true});
  log_to_console_and(log);
  if (tokenizer) keep_tokenizer(run_tokenizer(config), *tokenizer);
  if (!output_->absent().empty())
    log_warning("{} cannot be locked ({}): make sure that no other job uses it", config.run.output,
                output_->absent());
}

}  // namespace megalith
