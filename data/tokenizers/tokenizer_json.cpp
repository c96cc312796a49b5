#include "data/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/pipeline_tokenizer.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

using Ordered = nlohmann::ordered_json;

Ordered byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", true}};
}

std::string path_of(const std::string& folder, const char* file) {
  return (std::filesystem::path(folder) / file).string();
}

// Returns vocab.json and merges.txt, with the special tokens of the other files, as a tokenizer.json.
Ordered json_of_gpt2(const std::map<std::string, std::string>& files, const std::string& folder,
                     const SpecialTokens& special) {
  const Json vocab = parse_json_file(files.at(vocab_file), path_of(folder, vocab_file));
  BpeNames names(vocab, path_of(folder, vocab_file), vocab_file);
  std::map<std::string, int64_t> added = special.added;
  const auto add = [&](const std::string& name) {
    if (const auto known = vocab.find(name); known != vocab.end()) added.emplace(name, known->get<int64_t>());
  };
  for (const std::string& name : special.names)
    if (name.size() > 2) add(name);  // a single character may be the token of a byte, and stays one
  add(special.end.value_or(std::string(end_of_text_name)));
  for (const auto& [name, id] : added) names.add_special(name, id);

  Ordered merges = Ordered::array();
  for (auto& [number, line] : lines_of_merges(files.at(merges_file))) {
    names.add_merge(line, path_of(folder, merges_file), "line", number);
    merges.push_back(std::move(line));
  }
  std::vector<std::pair<int64_t, std::string>> tokens;
  for (const auto& [name, id] : vocab.items()) tokens.emplace_back(id.get<int64_t>(), name);
  std::sort(tokens.begin(), tokens.end());
  Ordered ids = Ordered::object(), specials = Ordered::array();
  auto& entries = ids.get_ref<Ordered::object_t&>();  // appended to directly, since its lookups take linear time
  for (const auto& [id, name] : tokens) entries.emplace_back(name, id);
  tokens.clear();
  for (const auto& [name, id] : added) tokens.emplace_back(id, name);
  std::sort(tokens.begin(), tokens.end());
  for (const auto& [id, name] : tokens)
    specials.push_back({{"id", id},
                        {"content", name},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
  const Ordered model = {{"type", "BPE"},
                         {"dropout", nullptr},
                         {"unk_token", nullptr},
                         {"continuing_subword_prefix", ""},
                         {"end_of_word_suffix", ""},
                         {"fuse_unk", false},
                         {"byte_fallback", false},
                         {"vocab", ids},
                         {"merges", merges}};
  return {{"version", "1.0"},          {"truncation", nullptr},       {"padding", nullptr},
          {"added_tokens", specials},  {"normalizer", nullptr},       {"pre_tokenizer", byte_level(false)},
          {"post_processor", nullptr}, {"decoder", byte_level(true)}, {"model", model}};
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_files(std::map<std::string, std::string> files, const std::string& folder,
                                              const SpecialTokens& special) {
  const auto described = files.find(tokenizer_json_file);
  const char* name = described == files.end() ? vocab_file : tokenizer_json_file;
  const Json file = described == files.end() ? Json(json_of_gpt2(files, folder, special))
                                             : parse_json_file(described->second, path_of(folder, name));
  CHECK(file.is_object(), "{} is not a JSON object", path_of(folder, name));
  if (files.contains(tokenizer_config_file)) check_tokenizer_config(folder, file);
  return make_pipeline_tokenizer(file, path_of(folder, name), std::move(files), special);
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeVocabulary& vocabulary) {
  return tokenizer_of_files(gpt2_files(vocabulary), "the tokenizer made here", {});
}

void add_for_transformers(std::map<std::string, std::string>& files, const SpecialTokens& special,
                          const std::string& end_name, int64_t context) {
  if (!files.contains(tokenizer_json_file))
    files[tokenizer_json_file] = json_text(json_of_gpt2(files, "", special), 1) + "\n";
  if (files.contains(tokenizer_config_file)) return;
  Ordered specials = Ordered::object();
  if (const auto known = files.find(special_tokens_file); known != files.end()) specials = parse_json(known->second);
  // GPT2Tokenizer would add a token of its own for each role that is absent.
  for (const char* key : {"bos_token", "eos_token", "unk_token"})
    if (!specials.contains(key)) specials[key] = end_name;
  Ordered config = {{"tokenizer_class", "GPT2Tokenizer"},
                    {"add_prefix_space", false},
                    {"clean_up_tokenization_spaces", false},
                    {"model_max_length", context}};
  config.update(specials);
  files[tokenizer_config_file] = json_text(config, 1) + "\n";
  files[special_tokens_file] = json_text(specials, 1) + "\n";
}

bool cuts_as_qwen2(const std::string& folder) {
  // Source: Qwen2Tokenizer of `transformers`.
  static constexpr const char* pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Json file = read_json_file(path_of(folder, tokenizer_json_file));
  const std::vector<const Json*> cuts = parts_of(json_member(file, "pre_tokenizer"), "pretokenizers");
  return type_of_part(json_member(file, "normalizer")) == "NFC" && cuts.size() == 2 &&
         json_member(json_member(*cuts[0], "pattern"), "Regex") == pattern && type_of_part(*cuts[1]) == "ByteLevel";
}

void check_no_tokenizer_in(const std::string& folder) {
  for (const char* name : files_of_tokenizer) check_nothing_at(path_of(folder, name), "choose another folder");
}

}  // namespace megalith
