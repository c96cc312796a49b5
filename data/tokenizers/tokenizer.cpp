#include "data/tokenizers/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "data/tokenizers/tokenizer_json.h"
#include "kernels/system/files.h"

namespace megalith {

const TokenUse& Tokenizer::use() const {
  static const TokenUse none;
  return none;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool with_specials) const {
  std::string text;
  const std::vector<SpecialToken> specials = with_specials ? std::vector<SpecialToken>() : special_tokens();
  for (const int32_t id : ids)
    if (std::ranges::find(specials, id, &SpecialToken::id) == specials.end()) text += token_bytes(id);
  return text;
}

std::string Tokenizer::token_name(int32_t id) const {
  if (id != end_of_text()) return std::string(token_bytes(id));
  const std::vector<SpecialToken> specials = special_tokens();
  return specials.empty() ? std::string(end_of_text_name) : specials.front().text;
}

namespace {

std::string tokenizer_folder_holds() {
  return fmt::format("{}, or vocab.json and merges.txt, or {} if prepare made it from bytes", tokenizer_json_file,
                     byte_tokenizer_file);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder) {
  namespace fs = std::filesystem;
  check_is_path(folder);
  std::error_code absent;
  CHECK(fs::is_directory(folder, absent), "the tokenizer {} is not a folder; name a folder with {}", folder,
        tokenizer_folder_holds());
  const auto has = [&](const char* name) { return fs::exists(fs::path(folder) / name, absent); };
  if (has(byte_tokenizer_file)) return make_byte_tokenizer();
  if (!has(tokenizer_json_file))
    for (const char* name : {vocab_file, merges_file})
      CHECK(has(name), "{} has no {}; a tokenizer folder has {}", folder, name, tokenizer_folder_holds());
  std::map<std::string, std::string> files;
  for (const char* name : files_of_tokenizer)
    if (has(name)) files[name] = read_file(fs::path(folder) / name);
  return tokenizer_of_files(std::move(files), folder, special_tokens_in(folder));
}

std::vector<std::string> tokenizer_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code absent;
  const auto take = [&](const char* name) {
    if (std::filesystem::exists(std::filesystem::path(folder) / name, absent)) found.push_back(folder + "/" + name);
  };
  take(byte_tokenizer_file);
  for (const char* name : files_of_tokenizer) take(name);
  return found;
}

}  // namespace megalith
