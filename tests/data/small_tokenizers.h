// Small tokenizers that show each rule of a tokenizer.json, and the folders of ../shared's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/scratch.h"

namespace megalith::small_tokenizers {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using test::Scratch;

inline std::string families() { return MEGALITH_SOURCE_DIR "/../shared/tokenizers/families"; }

inline std::vector<std::string> family_folders() {
  std::vector<std::string> folders;
  if (std::filesystem::is_directory(families()))
    for (const auto& entry : std::filesystem::directory_iterator(families())) folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

inline Ids plain(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

// GPT-2's tables, without its tokenizer.
inline BpeVocabulary gpt2_vocabulary() {
  const std::string path = test::gpt2_folder() + "/vocab.json";
  const Json ids = read_json_file(path);
  BpeNames names(ids, path, "vocab.json");
  for (const auto& [number, line] : lines_of_merges(read_file(test::gpt2_folder() + "/merges.txt")))
    names.add_merge(line, "merges.txt", "line", number);
  BpeVocabulary vocabulary;
  vocabulary.merges = names.merges();
  vocabulary.end_of_text = ids.at("<|endoftext|>").get<int32_t>();
  vocabulary.tokens.resize(ids.size());
  for (const auto& [name, id] : ids.items())
    if (id != vocabulary.end_of_text) vocabulary.tokens[id.get<size_t>()] = *bytes_of_name(name);
  for (int byte = 0; byte < 256; byte++)
    vocabulary.byte_ids[static_cast<size_t>(byte)] = ids.at(name_of_byte(static_cast<char>(byte))).get<int32_t>();
  return vocabulary;
}

// A byte-level tokenizer: ids 0 to 255 are the bytes, then come "ab", "12", " a", "abc" without a merge, and <end>.
inline Json of_bytes() {
  Json file = Json::parse(R"({"added_tokens": [{"id": 260, "special": true, "content": "<end>"}], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "post_processor": null,
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {}, "merges": ["a b", "1 2", "Ġ a"]}})");
  Json& vocab = file["model"]["vocab"];
  for (int byte = 0; byte < 256; byte++) vocab[name_of_byte(static_cast<char>(byte))] = byte;
  for (const char* token : {"ab", "12", "Ġa", "abc"}) vocab[token] = vocab.size();
  return file;
}
constexpr int32_t ab = 256, twelve = 257, blank_a = 258, abc = 259, end = 260;

// Llama 2's kind: <unk>, <s>, </s>, the bytes, then characters and what merges make of them.
inline Json of_characters() {
  Json file = Json::parse(R"({"added_tokens": [{"id": 0, "special": true, "content": "<unk>"},
      {"id": 1, "special": true, "content": "<s>"}, {"id": 2, "special": true, "content": "</s>"}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2}, "merges": [["▁", "a"], ["a", "b"], ["▁a", "b"], ["▁", "▁"]]}})");
  Json& vocab = file["model"]["vocab"];
  for (int byte = 0; byte < 256; byte++) vocab[fmt::format("<0x{:02X}>", byte)] = vocab.size();
  for (const char* token : {"▁", "a", "b", "é", "▁a", "ab", "▁ab", "▁▁"}) vocab[token] = vocab.size();
  return file;
}
constexpr int32_t first_byte = 3, blank = 259, b_ = 261, e_acute = 262, _a = 263, ab_ = 264, _ab = 265,
                  two_blanks = 266;

class Small {
 public:
  explicit Small(const Json& file, const char* end_name = "<end>") {
    scratch_.write("t/tokenizer.json", file.dump());
    scratch_.write("t/tokenizer_config.json", Json{{"eos_token", end_name}}.dump());
    tokenizer_ = load_tokenizer(scratch_.path("t"));
  }
  const Tokenizer* operator->() const { return tokenizer_.get(); }
  const Tokenizer& operator*() const { return *tokenizer_; }
  std::string path(const std::string& name) const { return scratch_.path(name); }

 private:
  const Scratch scratch_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

inline Json changed(Json file, const char* pointer, const std::string& value) {
  file[Json::json_pointer(pointer)] = Json::parse(value);
  return file;
}

inline Json token(const char* content, int32_t id, const std::string& flags) {
  Json made = Json::parse("{" + flags + "}");
  made["content"] = content;
  made["id"] = id;
  return made;
}

}  // namespace megalith::small_tokenizers
