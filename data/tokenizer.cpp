#include "data/tokenizer.h"

#include <filesystem>
#include <system_error>

#include "data/bpe_tokenizer.h"
#include "kernels/base/check.h"

namespace megalith {

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += token_bytes(id);
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code absent;
  CHECK(fs::is_directory(folder, absent),
        "the tokenizer {} is not a folder; name one that holds vocab.json and merges.txt, or {} where prepare made it "
        "of bytes",
        folder, byte_tokenizer_file);
  if (fs::exists(fs::path(folder) / byte_tokenizer_file, absent)) return make_byte_tokenizer();
  for (const char* name : {"vocab.json", "merges.txt"})
    CHECK(fs::exists(fs::path(folder) / name, absent),
          "{} has no {}; a tokenizer folder holds vocab.json and merges.txt, or {} where prepare made it of bytes",
          folder, name, byte_tokenizer_file);
  return make_bpe_tokenizer(read_bpe(folder));
}

}  // namespace megalith
