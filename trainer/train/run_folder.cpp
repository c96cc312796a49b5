#include "trainer/train/run_folder.h"

#include <filesystem>

#include "data/conversations/chat_template.h"
#include "kernels/system/json.h"
#include "trainer/checkpointing/model_use.h"
#include "trainer/log/log.h"
#include "trainer/session/last_word.h"
#include "trainer/session/recorder_pages.h"
#include "trainer/step/text_data.h"

namespace megalith {

namespace {

void lock_folder(std::optional<FolderLock>& lock, const std::string& key, const std::string& folder) {
  const std::string remedy = fmt::format("choose another with {}=DIR", key);
  make_folders(folder, fmt::format("it is {} = {}; {}", key, folder, remedy));
  lock.emplace(folder, remedy);
}

// Renames NAME + extension to NAME.earlier-K + extension and returns the new path.
std::string keep_as_earlier(const std::string& name, const std::string& extension) {
  std::string kept;
  for (int k = 1; kept.empty() || std::filesystem::exists(kept); k++)
    kept = fmt::format("{}.earlier-{}{}", name, k, extension);
  move_file(name + extension, kept);
  return kept;
}

// Renames a log.txt that no run began, such as notes, and returns the new path or "".
std::string keep_log(const std::string& name) {
  const std::string path = name + ".txt";
  std::error_code absent;
  if (std::filesystem::is_symlink(path, absent) || !std::filesystem::is_regular_file(path, absent)) return "";
  return begins_as_log(path) ? "" : keep_as_earlier(name, ".txt");
}

// Writes the resolved config and keeps a handwritten one, such as with comments.
void keep_config(const Config& config) {
  const std::string name = config.run.output + "/config", path = name + ".toml", text = config_to_keep(config);
  if (std::filesystem::exists(path))
    if (const std::string there = read_file(path); there != text && !is_generated(there))
      log_info("{} was written by hand and is now {}; the resolved config of the run replaces it", path,
               keep_as_earlier(name, ".toml"));
  write_file(path, text, {.replace = true});
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
  if (std::filesystem::exists(folder))
    log_info("{} was another tokenizer, which is now {}", folder, keep_as_earlier(folder, ""));
  move_file(partial, folder);
}

// Keeps the template of the conversations that are trained on, which `megalith chat` looks for. Of several sources it
// is the first's.
void keep_chat_template(const Config& config) {
  for (const SourceTokenizer& source : tokenizers_of_sources("data.train", config.data.train)) {
    const std::filesystem::path made = std::filesystem::path(source.folder).parent_path() / chat_template_name;
    if (!std::filesystem::exists(made)) continue;
    write_file(config.run.output + "/" + chat_template_name, read_file(made.string()), {.replace = true});
    return;
  }
}

// Keeps the settings for generating texts in the base's folder, for `megalith generate` and exports.
void keep_generation_config(const Config& config) {
  const std::string &base = config.checkpoint.init_from, kept = config.run.output + "/" + generation_config_file;
  std::error_code absent;
  if (base.empty() || std::filesystem::exists(kept, absent) || !std::filesystem::is_directory(base, absent)) return;
  const std::string folder = folder_of_use(open_weights(base));
  if (folder.empty()) return;
  const GenerationConfig theirs = read_generation_config(folder);
  if (theirs.keys.empty()) return;
  write_file(kept, json_text(theirs.keys, 1) + "\n");
}

}  // namespace

std::string config_to_keep(Config config) {
  config.checkpoint.allow_changes = false;
  if (config.checkpoint.directory == config.run.output + "/checkpoints") config.checkpoint.directory.clear();
  return to_toml(config);
}

RunFolder::RunFolder(const Config& config, const Tokenizer* tokenizer, int rank)
    : config_(config), tokenizer_(tokenizer) {
  const std::filesystem::path folder = config.run.output;
  const std::string log = (folder / "log.txt").string();
  if (rank != 0) {
    log_nowhere(log);
    return;
  }
  lock_folder(output_, "run.output", config.run.output);
  if (std::error_code absent; !std::filesystem::equivalent(folder, config.checkpoint.directory, absent))
    lock_folder(checkpoints_, "checkpoint.directory", config.checkpoint.directory);
  check_dumps((folder / "calls").string());
  const std::string kept = keep_log((folder / "log").string());
  log_to_console_and(log);
  if (!kept.empty()) log_info("{} is not the log of a run and is now {}", log, kept);
  keep_config(config);
  if (tokenizer_) keep_tokenizer(run_tokenizer(config), *tokenizer_);
  if (config.data.masked) keep_chat_template(config);
  keep_generation_config(config);
  if (!output_->absent().empty())
    log_warning("{} cannot be locked ({}): make sure that no other job uses it", config.run.output, output_->absent());
}

void RunFolder::restore() {
  const auto lock_again = [](std::optional<FolderLock>& lock, const std::string& key, const std::string& folder) {
    if (!lock || lock->holds()) return;
    lock_folder(lock, key, folder);
    log_warning("{} or its lock was removed during this run and is locked again", folder);
  };
  lock_again(output_, "run.output", config_.run.output);
  lock_again(checkpoints_, "checkpoint.directory", config_.checkpoint.directory);
  if (!output_) return;
  try {
    std::error_code absent;
    if (!std::filesystem::exists(config_.run.output + "/config.toml", absent)) keep_config(config_);
    if (const std::string kept = run_tokenizer(config_); tokenizer_ && !std::filesystem::exists(kept, absent)) {
      keep_tokenizer(kept, *tokenizer_);
      log_warning("{} was removed during this run and is restored", kept);
    }
  } catch (const Error& e) {  // the next save tries again
    log_warning("cannot restore files that were removed during this run: {}", e.what());
  }
}

}  // namespace megalith
