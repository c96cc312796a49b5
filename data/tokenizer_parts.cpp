#include "data/tokenizer_parts.h"

#include <fmt/format.h>

#include <vector>

#include "data/split_pattern.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

const Json no_part;

std::string type_of(const Json& part) {
  const Json& type = json_member(part, "type");
  return type.is_string() ? type.get<std::string>() : part.is_null() ? "none" : "unknown";
}

// Collects the parts of a sequence, however nested, or the part itself; none for null.
void flatten(const Json& part, const char* members, std::vector<const Json*>& out) {
  if (part.is_null()) return;
  const Json& inside = json_member(part, members);
  if (type_of(part) != "Sequence" || !inside.is_array()) return out.push_back(&part);
  for (const Json& one : inside) flatten(one, members, out);
}

std::vector<const Json*> parts_of(const Json& part, const char* members) {
  std::vector<const Json*> parts;
  flatten(part, members, parts);
  return parts;
}

// An absent member is not false: "strip_left" then is true.
bool is_false(const Json& part, const char* key) { return json_member(part, key) == false; }

bool changes_text(const Json& normalizer) {
  const std::string type = type_of(normalizer);
  if (type == "Prepend") return json_member(normalizer, "prepend") != "";
  if (type == "Strip") return !is_false(normalizer, "strip_left") || !is_false(normalizer, "strip_right");
  if (type == "Replace") {
    const Json& pattern = json_member(json_member(normalizer, "pattern"), "String");
    return !pattern.is_string() || pattern != json_member(normalizer, "content");
  }
  return true;
}

// A Split must give each match of GPT-2's pattern as a pre-token. The matches cover a text, so that it does not matter
// whether what is between them is kept or removed.
std::string other_split(const Json& split) {
  const Json &pattern = json_member(json_member(split, "pattern"), "Regex"), &behavior = json_member(split, "behavior");
  if (!pattern.is_string() || !cuts_as_gpt2(pattern.get<std::string>()))
    return fmt::format("the pre-tokenizer Split has the pattern {}", json_text(json_member(split, "pattern")));
  const bool isolates = behavior == "Isolated" || behavior == "isolated";
  const bool removes = behavior == "Removed" || behavior == "removed";
  if (isolates || (removes && json_member(split, "invert") == true)) return {};
  return fmt::format("the pre-tokenizer Split has behavior = {} and invert = {}", json_text(behavior),
                     json_text(json_member(split, "invert")));
}

// Returns the special tokens that a template adds to a single text, or "".
std::string added_by_template(const Json& processor) {
  const Json& single = json_member(processor, "single");
  if (!single.is_array()) return "an unknown template";
  int texts = 0;
  for (const Json& part : single) {
    if (const Json& special = json_member(part, "SpecialToken"); !special.is_null()) {
      const Json& name = json_member(special, "id");
      const Json& known = json_member(processor, "special_tokens");
      const Json& ids =
          json_member(name.is_string() ? json_member(known, name.get<std::string>().c_str()) : no_part, "ids");
      if (!ids.is_array() || !ids.empty()) return json_text(name);
    } else if (json_member(json_member(part, "Sequence"), "id") == "A") {
      texts++;
    } else {
      return json_text(part);
    }
  }
  return texts == 1 ? "" : fmt::format("the text {} times", texts);
}

}  // namespace

const Json& json_member(const Json& object, const char* key) {
  if (!object.is_object()) return no_part;
  const auto found = object.find(key);
  return found == object.end() ? no_part : *found;
}

// byte_fallback and the unknown token are for bytes without a token, and here each has one.
std::string other_model(const Json& model) {
  // Old files do not name it.
  const std::string type = model.contains("type") ? type_of(model) : "BPE";
  if (type != "BPE") return fmt::format("the model is {}", type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json& affix = json_member(model, key); !affix.is_null() && affix != "")
      return fmt::format("model.{} is {}", key, json_text(affix));
  if (const Json& dropout = json_member(model, "dropout"); !dropout.is_null() && dropout != 0)
    return fmt::format("model.dropout is {}", json_text(dropout));
  return {};
}

std::string other_normalizer(const Json& normalizer) {
  for (const Json* part : parts_of(normalizer, "normalizers"))
    if (changes_text(*part)) return fmt::format("the normalizer is {}", type_of(*part));
  return {};
}

// ByteLevel comes last, since it writes bytes as other characters. It does not split the pre-tokens of GPT-2's pattern
// further, so that it may repeat that pattern.
std::string other_pre_tokenizer(const Json& pre_tokenizer) {
  const std::vector<const Json*> parts = parts_of(pre_tokenizer, "pretokenizers");
  if (parts.empty()) return "the pre-tokenizer is none";
  bool is_cut = false;
  for (const Json* part : parts) {
    const std::string type = type_of(*part);
    if (type == "Split" && part != parts.back()) {
      if (const std::string other = other_split(*part); !other.empty()) return other;
      is_cut = true;
      continue;
    }
    if (type != "ByteLevel") return fmt::format("the pre-tokenizer is {}", type);
    if (part != parts.back()) return fmt::format("the pre-tokenizer is ByteLevel, and {} others", parts.size() - 1);
    // Its default is true, so it must be present.
    if (const Json& prefix = json_member(*part, "add_prefix_space"); prefix != false)
      return fmt::format("the pre-tokenizer ByteLevel has add_prefix_space = {}",
                         prefix.is_null() ? "true" : json_text(prefix));
    const Json& regex = json_member(*part, "use_regex");
    if (!is_cut && !regex.is_null() && regex != true)
      return fmt::format("the pre-tokenizer ByteLevel has use_regex = {}, and nothing before it cuts texts",
                         json_text(regex));
  }
  return {};
}

std::string other_post_processor(const Json& post_processor) {
  for (const Json* part : parts_of(post_processor, "processors")) {
    const std::string type = type_of(*part);
    if (type == "ByteLevel") continue;  // changes offsets only
    if (type != "TemplateProcessing")
      return fmt::format("the post_processor is {}: it adds tokens to every text, and nothing here does", type);
    if (const std::string added = added_by_template(*part); !added.empty())
      return fmt::format("the post_processor is TemplateProcessing: it adds {} to every text, and nothing here does",
                         added);
  }
  return {};
}

std::string other_decoder(const Json& decoder) {
  for (const Json* part : parts_of(decoder, "decoders")) {
    const std::string type = type_of(*part);
    // Fuse joins tokens, as ByteLevel does. No other decoder reads the output of ByteLevel.
    if (type != "ByteLevel" && type != "Fuse") return fmt::format("the decoder is {}: tokens are bytes here", type);
  }
  return {};
}

}  // namespace megalith
