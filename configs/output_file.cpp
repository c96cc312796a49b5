#include "configs/output_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr std::array<std::string_view, 9> endings{".toml", ".bin",         ".idx",     ".npy",   ".h5",
                                                  ".pt",   ".safetensors", ".parquet", ".events"};
constexpr std::array<std::string_view, 12> names_of_ours{
    "manifest.json",  "metrics.jsonl",         "log.txt",    "lock",       "checked-tokens.json",     "config.json",
    "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json", "bytes.txt"};

}  // namespace

void check_output(const std::string& option, const std::string& path) {
  std::error_code absent;
  if (path.empty() || !std::filesystem::exists(path, absent)) return;
  const std::string name = std::filesystem::path(path).filename().string();
  const bool needed = std::ranges::find(names_of_ours, name) != names_of_ours.end() ||
                      std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
  CHECK(!needed, "{} {} exists, and by its name it is data, a configuration or a part of a run; choose another file",
        option, path);
}

}  // namespace megalith
