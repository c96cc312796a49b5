#include "data/tokenizers/tokenizer_config.h"

#include <filesystem>
#include <set>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/special_tokens.h"
#include "data/tokenizers/text_frame.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

// Keys that do not affect ids: padding and truncation, decoding, the class that runs them, and keys that
// read_tokenizer_json() and the chat template read.
bool is_without_effect(const std::string& key) {
  static const std::set<std::string> keys{"tokenizer_class",
                                          "model_max_length",
                                          "max_length",
                                          "stride",
                                          "padding",
                                          "padding_side",
                                          "truncation",
                                          "truncation_side",
                                          "truncation_strategy",
                                          "pad_to_multiple_of",
                                          "pad_token_type_id",
                                          "pad_token_id",
                                          "model_input_names",
                                          "clean_up_tokenization_spaces",
                                          "spaces_between_special_tokens",
                                          "errors",
                                          "legacy",
                                          "sp_model_kwargs",
                                          "use_default_system_prompt",
                                          "chat_template",
                                          "name_or_path",
                                          "tokenizer_file",
                                          "vocab_file",
                                          "merges_file",
                                          "special_tokens_map_file",
                                          "processor_class",
                                          "backend",
                                          "is_local",
                                          "local_files_only",
                                          "from_slow",
                                          "use_fast",
                                          "response_schema",
                                          "return_token_type_ids",
                                          "trim_offsets",
                                          "device_map",
                                          "max_lpw_length",
                                          "vocab_size",
                                          "verbose",
                                          "__type",
                                          "tokenizer_type",
                                          "fix_mistral_regex"};
  return keys.contains(key);
}

class TokenizerConfig {
 public:
  TokenizerConfig(const Json& config, std::string path, const Json& file)
      : config_(config), path_(std::move(path)), file_(file) {
    for (const Json& token : json_member(file, "added_tokens"))
      if (const Json& content = json_member(token, "content"); content.is_string()) added_[content] = &token;
  }

  void check() const {
    for (const auto& [key, value] : config_.items()) {
      if (key.ends_with("_token") && !key.starts_with("add_"))
        check_token(key, value);
      else if (key == "extra_special_tokens" || key == "additional_special_tokens" ||
               key == "model_specific_special_tokens")
        for (const Json& token : value) check_token(key, token);
      else if (key == "added_tokens_decoder")
        for (const auto& [id, token] : value.items()) check_decoder(id, token);
      else if (key == "add_prefix_space")
        check_prefix(value);
      else if (key == "add_bos_token" || key == "add_eos_token")
        check_frame(key, value);
      else if (key == "split_special_tokens" || key == "do_lower_case")
        need(says_nothing(value), key, value, "false, as in tokenizer.json");
    }
    const std::set<std::string> read{
        "extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens",
        "added_tokens_decoder", "add_prefix_space",          "add_bos_token",
        "add_eos_token",        "split_special_tokens",      "do_lower_case"};
    const std::string other = unknown_key(config_, [&](const std::string& key) {
      return read.contains(key) || key.ends_with("_token") || is_without_effect(key);
    });
    CHECK(other.empty(),
          "{}: {} = {}; megalith does not know this key, which may change the ids of texts; remove it if it does not",
          path_, other, json_text(config_.at(other)));
  }

 private:
  void need(bool holds, const std::string& key, const Json& value, const std::string& what) const {
    CHECK(holds,
          "{}: {} = {}, with which `transformers` makes other ids than tokenizer.json describes: megalith reads {}; "
          "rewrite tokenizer.json with save_pretrained(), or remove the key",
          path_, key, json_text(value), what);
  }

  // A token with a role must be one that tokenizer.json cuts out of texts, in the same way.
  void check_token(const std::string& key, const Json& value) const {
    if (says_nothing(value) || key == "eos_token")
      return;  // the end token is cut out of texts whether it is added or not
    const Json& content = value.is_object() ? json_member(value, "content") : value;
    const auto known = content.is_string() ? added_.find(content.get<std::string>()) : added_.end();
    need(known != added_.end(), key, value, "tokens that are among its added_tokens");
    if (value.is_object()) check_flags(key, value, *known->second);
  }

  void check_flags(const std::string& key, const Json& here, const Json& there) const {
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      const Json& asked = json_member(here, flag);
      const Json& has = json_member(there, flag);
      need(asked.is_null() || (asked == true) == (has == true), key, here,
           std::string(flag) + " as its added token has it");
    }
  }

  void check_decoder(const std::string& id, const Json& token) const {
    const std::string key = "added_tokens_decoder of " + id;
    check_token(key, token);
    const auto known = added_.find(json_member(token, "content").get<std::string>());
    need(json_text(json_member(*known->second, "id")) == id, key, token, "the id of tokenizer.json");
  }

  void check_prefix(const Json& value) const {
    for (const Json* part : parts_of(json_member(file_, "pre_tokenizer"), "pretokenizers"))
      if (type_of_part(*part) == "ByteLevel" && !value.is_null())
        need((json_member(*part, "add_prefix_space") == true) == (value == true), "add_prefix_space", value,
             "the setting of its ByteLevel");
  }

  void check_frame(const std::string& key, const Json& value) const {
    if (value.is_null()) return;
    const TextFrame frame = read_text_frame(json_member(file_, "post_processor"), path_);
    const bool has = key == "add_bos_token" ? !frame.beginning.empty() : !frame.ending.empty();
    need(has == (value == true), key, value, "what its post_processor adds");
  }

  const Json& config_;
  const std::string path_;
  const Json& file_;
  std::map<std::string, const Json*> added_;  // by text
};

}  // namespace

void check_tokenizer_config(const std::string& folder, const Json& file) {
  const std::string path = (std::filesystem::path(folder) / tokenizer_config_file).string();
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return;
  const Json config = read_json_file(path);
  CHECK(config.is_object(), "{} is not a JSON object", path);
  try {
    TokenizerConfig(config, path, file).check();
  } catch (const Json::exception& e) {
    FAIL("{} is not valid ({})", path, e.what());
  }
}

std::map<std::string, std::string> with_chat_template(std::map<std::string, std::string> files,
                                                      const std::string& jinja) {
  files.erase(jinja_file);
  if (const auto config = files.find(tokenizer_config_file); config != files.end()) {
    Json keys = parse_json(config->second);
    if (keys.erase("chat_template") > 0) config->second = json_text(keys, 2) + "\n";
  }
  if (!jinja.empty()) files[jinja_file] = jinja;
  return files;
}

}  // namespace megalith
