#include "data/tokenizers/special_tokens.h"

#include <filesystem>

#include "data/tokenizers/bpe_names.h"
#include "kernels/system/check.h"
#include "kernels/system/files.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

Json object_in(const std::string& folder, const char* name) {
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return Json::object();
  Json file = read_json_file(path.string());
  CHECK(file.is_object(), "{} is not a JSON object", path.string());
  return file;
}

// Returns the text of a token that is a string or an object with a content; "" for any other value.
std::string content_of_token(const Json& token) {
  const Json& content = token.is_object() && token.contains("content") ? token["content"] : token;
  return content.is_string() ? content.get<std::string>() : "";
}

}  // namespace

SpecialTokens special_tokens_in(const std::string& folder) {
  SpecialTokens found;
  const auto take = [&](const Json& token) {
    const std::string name = content_of_token(token);
    if (!name.empty()) found.names.push_back(name);
    return name;
  };
  for (const char* file : {tokenizer_config_file, special_tokens_file}) {
    const Json object = object_in(folder, file);
    for (const auto& [key, value] : object.items()) {
      if (key.ends_with("_token")) {
        const std::string name = take(value);
        if (!name.empty()) found.use.roles.emplace(key, name);
      }
      if ((key == "additional_special_tokens" || key == "extra_special_tokens") && value.is_array())
        for (const Json& token : value) take(token);
    }
  }
  if (const auto end = found.use.roles.find("eos_token"); end != found.use.roles.end()) found.end = end->second;
  found.use.jinja = jinja_in(folder);
  const Json added = object_in(folder, added_tokens_file);
  for (const auto& [name, id] : added.items())
    if (id.is_number_integer()) found.added.emplace(name, id.get<int64_t>());
  return found;
}

std::string jinja_in(const std::string& folder) {
  const std::filesystem::path file = std::filesystem::path(folder) / jinja_file;
  std::error_code absent;
  if (std::filesystem::is_regular_file(file, absent)) return read_file(file.string());
  const Json all = object_in(folder, tokenizer_config_file);
  const Json& found = all.value("chat_template", Json());
  if (found.is_string()) return found.get<std::string>();
  for (const Json& one : found.is_array() ? found : Json::array())
    if (one.is_object() && one.value("name", Json()) == "default" && one.value("template", Json()).is_string())
      return one["template"].get<std::string>();
  return "";
}

}  // namespace megalith
