#include "data/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/tokenizers/bpe_merger.h"
#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/pipeline_tokenizer.h"
#include "data/tokenizers/pretokenizer.h"
#include "data/tokenizers/special_tokens.h"
#include "data/tokenizers/tokenizer_config.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/files.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

// These files of a tokenizer's folder are copied with it.
constexpr std::array files_of_tokenizer = {
    tokenizer_json_file, tokenizer_config_file, special_tokens_file, added_tokens_file,
    "vocab.json",        "merges.txt",          "tokenizer.model",   jinja_file};

class TokenizerJson {
 public:
  explicit TokenizerJson(const std::string& path) : path_(path), file_(read_json_file(path)) {
    CHECK(file_.is_object(), "{} is not a JSON object", path_);
  }

  std::unique_ptr<Tokenizer> read(const SpecialTokens& special) const {
    const Json& model = json_member(file_, "model");
    CHECK(model.is_object(), "{} has no model", path_);
    check_tokenizer_config(std::filesystem::path(path_).parent_path().string(), file_);
    if (makes_ids_as_gpt2()) {
      BpeNames names(json_member(model, "vocab"), path_, "model.vocab");
      add_specials(names);
      names.end_is(special.end);
      BpeVocabulary vocabulary = names.without_merges();
      add_merges(json_member(model, "merges"), names, path_);
      vocabulary.merges = names.merges();
      vocabulary.use = special.use;
      if (json_member(model, "ignore_merges") != true || merges_make_all(vocabulary))
        return make_bpe_tokenizer(std::move(vocabulary));
    }
    return make_pipeline_tokenizer(file_, path_, files_beside(), special);
  }

 private:
  bool makes_ids_as_gpt2() const {
    if (!other_model(json_member(file_, "model")).empty() || !normalizes_as_gpt2(json_member(file_, "normalizer")) ||
        !pre_tokenizes_as_gpt2(json_member(file_, "pre_tokenizer")) ||
        !adds_nothing(json_member(file_, "post_processor")) || !decodes_as_gpt2(json_member(file_, "decoder")))
      return false;
    if (const Json& ignores = json_member(json_member(file_, "model"), "ignore_merges");
        !ignores.is_null() && !ignores.is_boolean())
      return false;  // refused there
    for (const Json& token : json_member(file_, "added_tokens")) {
      if (json_member(token, "special") != true) return false;
      for (const char* key : {"lstrip", "rstrip", "single_word"})
        if (const Json& flag = json_member(token, key); !flag.is_null() && flag != false) return false;
    }
    return true;
  }

  std::map<std::string, std::string> files_beside() const {
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    std::map<std::string, std::string> files;
    std::error_code absent;
    for (const char* name : files_of_tokenizer)
      if (std::filesystem::exists(folder / name, absent)) files[name] = read_file((folder / name).string());
    if (!files.contains(tokenizer_json_file)) files[tokenizer_json_file] = read_file(path_);
    return files;
  }

  // With ignore_merges a pre-token that is a token becomes it without merges. Returns whether the merges make the same.
  static bool merges_make_all(const BpeVocabulary& vocabulary) {
    const Pretokenizer pretokenizer;
    const MergeTable table(vocabulary);
    BpeMerger merger(table);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.tokens.size()); id++) {
      const std::string& token = vocabulary.tokens[static_cast<size_t>(id)];
      const bool is_special = std::binary_search(vocabulary.specials.begin(), vocabulary.specials.end(), id);
      if (token.empty() || is_special || pretokenizer.first_pretoken(token) < token.size()) continue;
      ids.clear();
      merger.merge(token, ids);
      if (ids != std::vector{id}) return false;
    }
    return true;
  }

  void add_specials(BpeNames& names) const {
    for (const Json& token : json_member(file_, "added_tokens")) {
      const Json &content = json_member(token, "content"), &id = json_member(token, "id");
      CHECK(content.is_string() && id.is_number_integer(), "{}: the added token {} has no content or no id", path_,
            json_text(token));
      CHECK(content != "", "{}: the added token of id {} has no text", path_, json_text(id));
      names.add_special(content.get<std::string>(), id.get<int64_t>());
    }
  }

  const std::string path_;
  const Json file_;
};

using Ordered = nlohmann::ordered_json;

Ordered byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", true}};
}

std::string tokenizer_json(const BpeVocabulary& vocabulary) {
  Ordered merges = Ordered::array();
  for (const auto& [left, right] : merge_names(vocabulary)) merges.push_back(left + " " + right);
  std::vector<int32_t> special_ids = vocabulary.specials;
  special_ids.insert(std::upper_bound(special_ids.begin(), special_ids.end(), vocabulary.end_of_text),
                     vocabulary.end_of_text);
  Ordered specials = Ordered::array();
  for (const int32_t id : special_ids)
    specials.push_back(
        {{"id", id},
         {"content", id == vocabulary.end_of_text ? vocabulary.end_name : vocabulary.tokens[static_cast<size_t>(id)]},
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
                         {"vocab", token_names(vocabulary)},
                         {"merges", merges}};
  const Ordered file = {
      {"version", "1.0"},          {"truncation", nullptr},       {"padding", nullptr},
      {"added_tokens", specials},  {"normalizer", nullptr},       {"pre_tokenizer", byte_level(false)},
      {"post_processor", nullptr}, {"decoder", byte_level(true)}, {"model", model}};
  return json_text(file, 1) + "\n";
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path, const SpecialTokens& special) {
  return TokenizerJson(path).read(special);
}

void write_tokenizer(const BpeVocabulary& vocabulary, const std::string& folder) {
  write_bpe(vocabulary, folder);
  const std::filesystem::path place(folder);
  if (!vocabulary.use.jinja.empty()) write_file(place / jinja_file, vocabulary.use.jinja);
  Ordered roles = vocabulary.use.roles;
  roles["eos_token"] = vocabulary.end_name;
  const bool usual = std::ranges::all_of(roles, [](const Ordered& role) { return role == end_of_text_name; });
  if (vocabulary.specials.empty() && usual) return;
  write_file(place / tokenizer_json_file, tokenizer_json(vocabulary));
  write_file(place / special_tokens_file, json_text(roles, 1) + "\n");
}

void write_for_transformers(const BpeVocabulary& vocabulary, int64_t context, const std::string& jinja,
                            const std::string& folder) {
  const std::filesystem::path place(folder);
  // GPT2Tokenizer would add a token of its own for one that is absent.
  Ordered specials = vocabulary.use.roles;
  for (const char* key : {"bos_token", "eos_token", "unk_token"})
    if (key == std::string("eos_token") || !specials.contains(key)) specials[key] = vocabulary.end_name;
  Ordered config = {{"tokenizer_class", "GPT2Tokenizer"},
                    {"add_prefix_space", false},
                    {"clean_up_tokenization_spaces", false},
                    {"model_max_length", context}};
  config.update(specials);
  write_bpe(vocabulary, folder);
  write_file(place / tokenizer_json_file, tokenizer_json(vocabulary));
  write_file(place / tokenizer_config_file, json_text(config, 1) + "\n");
  write_file(place / special_tokens_file, json_text(specials, 1) + "\n");
  if (!jinja.empty()) write_file(place / jinja_file, jinja);
}

bool cuts_as_qwen2(const std::string& folder) {
  // Source: Qwen2Tokenizer of `transformers`.
  static constexpr const char* pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Json file = read_json_file((std::filesystem::path(folder) / tokenizer_json_file).string());
  const std::vector<const Json*> cuts = parts_of(json_member(file, "pre_tokenizer"), "pretokenizers");
  return type_of_part(json_member(file, "normalizer")) == "NFC" && cuts.size() == 2 &&
         json_member(json_member(*cuts[0], "pattern"), "Regex") == pattern && type_of_part(*cuts[1]) == "ByteLevel";
}

void check_no_tokenizer_in(const std::string& folder) {
  for (const char* name : files_of_tokenizer)
    check_nothing_at((std::filesystem::path(folder) / name).string(), "choose another folder");
}

}  // namespace megalith
