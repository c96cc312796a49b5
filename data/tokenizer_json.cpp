#include "data/tokenizer_json.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/bpe_names.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

const Json nothing;

// A member, or null where there is none.
const Json& member(const Json& object, const char* key) {
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

std::string type_of(const Json& part) {
  const Json& type = member(part, "type");
  return type.is_string() ? type.get<std::string>() : part.is_null() ? "none" : "unknown";
}

class TokenizerJson {
 public:
  explicit TokenizerJson(const std::string& path) : path_(path), file_(read_json_file(path)) {
    CHECK(file_.is_object(), "{} is not a JSON object", path_);
  }

  BpeVocabulary read() const {
    const Json& model = member(file_, "model");
    CHECK(model.is_object(), "{} has no model", path_);
    check_model(model);
    check_normalizer();
    check_pre_tokenizer();
    check_all_byte_level("post_processor", "it adds tokens to every text, and nothing here does");
    check_all_byte_level("decoder", "tokens are bytes here");
    BpeNames names(member(model, "vocab"), path_, "model.vocab");
    add_specials(names);
    BpeVocabulary vocabulary = names.without_merges();
    add_merges(member(model, "merges"), names);
    vocabulary.merges = names.merges();
    return vocabulary;
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> what, Args&&... args) const {
    FAIL("{}: {}; only a byte-level BPE that cuts texts as GPT-2 does can be read exactly", path_,
         fmt::format(what, std::forward<Args>(args)...));
  }

  void check_model(const Json& model) const {
    // Old files do not name it.
    const std::string type = model.contains("type") ? type_of(model) : "BPE";
    if (type != "BPE") refuse("the model is {}", type);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& affix = member(model, key); !affix.is_null() && affix != "")
        refuse("model.{} is {}", key, json_text(affix));
    if (const Json& dropout = member(model, "dropout"); !dropout.is_null() && dropout != 0)
      refuse("model.dropout is {}", json_text(dropout));
    for (const char* key : {"ignore_merges", "byte_fallback"})
      if (const Json& set = member(model, key); !set.is_null() && set != false) refuse("model.{} is set", key);
  }

  void check_normalizer() const {
    const Json& normalizer = member(file_, "normalizer");
    if (normalizer.is_null() || (type_of(normalizer) == "Sequence" && member(normalizer, "normalizers").empty()))
      return;
    refuse("the normalizer is {}", type_of(normalizer));
  }

  void check_pre_tokenizer() const {
    const Json* found = &member(file_, "pre_tokenizer");
    if (const Json& all = member(*found, "pretokenizers"); type_of(*found) == "Sequence" && all.is_array()) {
      if (all.size() != 1) refuse("the pre-tokenizer is a sequence of {}", all.size());
      found = &all[0];
    }
    if (type_of(*found) != "ByteLevel") refuse("the pre-tokenizer is {}", type_of(*found));
    // Its default is true, so that it has to be there.
    if (const Json& prefix = member(*found, "add_prefix_space"); prefix != false)
      refuse("the pre-tokenizer ByteLevel has add_prefix_space = {}", prefix.is_null() ? "true" : json_text(prefix));
    if (const Json& regex = member(*found, "use_regex"); !regex.is_null() && regex != true)
      refuse("the pre-tokenizer ByteLevel has use_regex = {}", json_text(regex));
  }

  void check_all_byte_level(const char* key, const char* why) const {
    const Json& part = member(file_, key);
    if (!part.is_null() && type_of(part) != "ByteLevel") refuse("the {} is {}: {}", key, type_of(part), why);
  }

  void add_specials(BpeNames& names) const {
    for (const Json& token : member(file_, "added_tokens")) {
      const Json &content = member(token, "content"), &id = member(token, "id");
      CHECK(content.is_string() && id.is_number_integer(), "{}: the added token {} has no content or no id", path_,
            json_text(token));
      if (member(token, "special") != true)
        refuse("the added token {} (id {}) is not special, so that it stands in texts", json_text(content),
               json_text(id));
      names.add_special(content.get<std::string>(), id.get<int64_t>());
    }
  }

  void add_merges(const Json& merges, BpeNames& names) const {
    CHECK(merges.is_array(), "{}: model.merges is not a list", path_);
    int64_t number = 0;
    for (const Json& merge : merges) {
      number++;
      if (merge.is_string()) {
        names.add_merge(merge.get<std::string>(), path_, "merge", number);
        continue;
      }
      CHECK(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
            "{}, merge {}: {} is neither a text nor a pair of texts", path_, number, json_text(merge));
      names.add_merge(merge[0].get<std::string>(), merge[1].get<std::string>(), path_, "merge", number);
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
  const Ordered end_of_text = {{"id", vocabulary.end_of_text},
                               {"content", end_of_text_name},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", false},
                               {"normalized", false},
                               {"special", true}};
  const Ordered model = {{"type", "BPE"},
                         {"dropout", nullptr},
                         {"unk_token", nullptr},
                         {"continuing_subword_prefix", ""},
                         {"end_of_word_suffix", ""},
                         {"fuse_unk", false},
                         {"byte_fallback", false},
                         {"vocab", token_names(vocabulary)},
                         {"merges", merges}};
  const Ordered file = {{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", Ordered::array({end_of_text})},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", byte_level(false)},
                        {"post_processor", nullptr},
                        {"decoder", byte_level(true)},
                        {"model", model}};
  return json_text(file, 1) + "\n";
}

const char* const config_file = "tokenizer_config.json";
const char* const specials_file = "special_tokens_map.json";

}  // namespace

BpeVocabulary read_tokenizer_json(const std::string& path) { return TokenizerJson(path).read(); }

void write_for_transformers(const BpeVocabulary& vocabulary, int64_t context, const std::string& folder) {
  const std::filesystem::path place(folder);
  Ordered specials;
  for (const char* key : {"bos_token", "eos_token", "unk_token"}) specials[key] = end_of_text_name;
  Ordered config = {{"tokenizer_class", "GPT2Tokenizer"},
                    {"add_prefix_space", false},
                    {"clean_up_tokenization_spaces", false},
                    {"model_max_length", context}};
  config.update(specials);
  write_bpe(vocabulary, folder);
  write_file(place / tokenizer_json_file, tokenizer_json(vocabulary));
  write_file(place / config_file, json_text(config, 1) + "\n");
  write_file(place / specials_file, json_text(specials, 1) + "\n");
}

void check_no_tokenizer_in(const std::string& folder) {
  std::error_code absent;
  for (const char* name : {tokenizer_json_file, config_file, specials_file, "vocab.json", "merges.txt"})
    CHECK(!std::filesystem::exists(std::filesystem::path(folder) / name, absent),
          "{}/{} exists already and is not overwritten; choose another folder", folder, name);
}

}  // namespace megalith
