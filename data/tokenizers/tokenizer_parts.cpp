#include "data/tokenizers/tokenizer_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/tokenizers/pretokenizer.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

const Json no_part;

void flatten(const Json& part, const char* members, std::vector<const Json*>& out) {
  if (part.is_null()) return;
  const Json& inside = json_member(part, members);
  if (type_of_part(part) != "Sequence" || !inside.is_array()) return out.push_back(&part);
  for (const Json& one : inside) flatten(one, members, out);
}

// An absent member is not false: the default of "strip_left" is true.
bool is_false(const Json& part, const char* key) { return json_member(part, key) == false; }

bool changes_text(const Json& normalizer) {
  const std::string type = type_of_part(normalizer);
  if (type == "Prepend") return json_member(normalizer, "prepend") != "";
  if (type == "Strip") return !is_false(normalizer, "strip_left") || !is_false(normalizer, "strip_right");
  if (type == "Replace") {
    const Json& pattern = json_member(json_member(normalizer, "pattern"), "String");
    return !pattern.is_string() || pattern != json_member(normalizer, "content");
  }
  return true;
}

// A Split must give each match of GPT-2's pattern as a pre-token. The matches cover a text, so it does not matter
// whether the text between them is kept or removed.
bool splits_as_gpt2(const Json& split) {
  const Json &pattern = json_member(json_member(split, "pattern"), "Regex"), &behavior = json_member(split, "behavior");
  if (!pattern.is_string() || !is_gpt2_pattern(pattern.get<std::string>())) return false;
  const bool isolates = behavior == "Isolated" || behavior == "isolated";
  const bool removes = behavior == "Removed" || behavior == "removed";
  return isolates || (removes && json_member(split, "invert") == true);
}

// Returns whether a template of a single text is that text.
bool is_only_text(const Json& processor) {
  const Json& single = json_member(processor, "single");
  if (!single.is_array()) return false;
  int texts = 0;
  for (const Json& part : single) {
    if (const Json& special = json_member(part, "SpecialToken"); !special.is_null()) {
      const Json& name = json_member(special, "id");
      const Json& known = json_member(processor, "special_tokens");
      const Json& ids =
          json_member(name.is_string() ? json_member(known, name.get<std::string>().c_str()) : no_part, "ids");
      if (!ids.is_array() || !ids.empty()) return false;
    } else if (json_member(json_member(part, "Sequence"), "id") == "A") {
      texts++;
    } else {
      return false;
    }
  }
  return texts == 1;
}

}  // namespace

void check_growth(size_t before, size_t after, const std::string& what) {
  constexpr size_t times = 1000, always = 1 << 20;
  CHECK(after <= times * before + always,
        "{} makes {} bytes of {}: more than {} times as many; such a tokenizer is not supported", what, after, before,
        times);
}

const Json& json_member(const Json& object, const char* key) {
  if (!object.is_object()) return no_part;
  const auto found = object.find(key);
  return found == object.end() ? no_part : *found;
}

std::string type_of_part(const Json& part) {
  const Json& type = json_member(part, "type");
  return type.is_string() ? type.get<std::string>() : part.is_null() ? "none" : "unknown";
}

std::vector<const Json*> parts_of(const Json& part, const char* members) {
  std::vector<const Json*> parts;
  flatten(part, members, parts);
  return parts;
}

std::string text_member(const Json& part, const char* key, const std::string& what, const std::string& path) {
  const Json& value = json_member(part, key);
  CHECK(value.is_string(), "{}: {} has {} = {}, which is not a text", path, what, key, json_text(value));
  return value.get<std::string>();
}

bool flag_member(const Json& part, const char* key, bool absent, const std::string& what, const std::string& path) {
  const Json& value = json_member(part, key);
  if (value.is_null()) return absent;
  CHECK(value.is_boolean(), "{}: {} has {} = {}, which is neither true nor false", path, what, key, json_text(value));
  return value.get<bool>();
}

TextPattern pattern_of(const Json& part, const std::string& what, const std::string& path, std::string* text) {
  const Json& pattern = json_member(part, "pattern");
  const Json &plain = json_member(pattern, "String"), &regex = json_member(pattern, "Regex");
  CHECK(plain.is_string() != regex.is_string(), "{}: {} has pattern = {}, which is neither a String nor a Regex", path,
        what, json_text(pattern));
  if (regex.is_string()) return TextPattern(regex.get<std::string>(), path + ", " + what);
  CHECK(plain != "", "{}: {} has an empty pattern", path, what);
  if (text) *text = plain.get<std::string>();
  return TextPattern::of_text(plain.get<std::string>());
}

void add_merges(const Json& merges, BpeNames& names, const std::string& path) {
  CHECK(merges.is_array(), "{}: model.merges is not a list", path);
  int64_t number = 0;
  for (const Json& merge : merges) {
    number++;
    if (merge.is_string()) {
      names.add_merge(merge.get<std::string>(), path, "merge", number);
      continue;
    }
    CHECK(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
          "{}, merge {}: {} is neither a text nor a pair of texts", path, number, json_text(merge));
    names.add_merge(merge[0].get<std::string>(), merge[1].get<std::string>(), path, "merge", number);
  }
}

// byte_fallback and the unknown token are for bytes without a token; here each byte has one.
std::string other_model(const Json& model) {
  // Old files do not have the key.
  const std::string type = model.contains("type") ? type_of_part(model) : "BPE";
  if (type != "BPE") return fmt::format("the model is {}", type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json& affix = json_member(model, key); !affix.is_null() && affix != "")
      return fmt::format("model.{} is {}", key, json_text(affix));
  if (const Json& dropout = json_member(model, "dropout"); !dropout.is_null() && dropout != 0)
    return fmt::format("model.dropout is {}", json_text(dropout));
  return {};
}

bool normalizes_as_gpt2(const Json& normalizer) {
  const std::vector<const Json*> parts = parts_of(normalizer, "normalizers");
  return std::ranges::none_of(parts, [](const Json* part) { return changes_text(*part); });
}

// ByteLevel comes last, since it writes bytes as other characters. It does not split the pre-tokens of GPT-2's pattern
// further, so it may repeat that pattern.
bool pre_tokenizes_as_gpt2(const Json& pre_tokenizer) {
  const std::vector<const Json*> parts = parts_of(pre_tokenizer, "pretokenizers");
  bool is_cut = false;
  for (const Json* part : parts) {
    if (part != parts.back()) {
      if (type_of_part(*part) != "Split" || !splits_as_gpt2(*part)) return false;
      is_cut = true;
      continue;
    }
    if (type_of_part(*part) != "ByteLevel" || json_member(*part, "add_prefix_space") != false) return false;
    const Json& regex = json_member(*part, "use_regex");
    return is_cut || regex.is_null() || regex == true;
  }
  return false;
}

// ByteLevel changes offsets only.
bool adds_nothing(const Json& post_processor) {
  const std::vector<const Json*> parts = parts_of(post_processor, "processors");
  return std::ranges::all_of(parts, [](const Json* part) {
    const std::string type = type_of_part(*part);
    return type == "ByteLevel" || (type == "TemplateProcessing" && is_only_text(*part));
  });
}

// Fuse joins tokens, as ByteLevel does.
bool decodes_as_gpt2(const Json& decoder) {
  const std::vector<const Json*> parts = parts_of(decoder, "decoders");
  return std::ranges::all_of(
      parts, [](const Json* part) { return type_of_part(*part) == "ByteLevel" || type_of_part(*part) == "Fuse"; });
}

}  // namespace megalith
