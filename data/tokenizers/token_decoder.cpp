#include "data/tokenizers/token_decoder.h"

#include <charconv>
#include <optional>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "data/tokenizers/whole_characters.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

constexpr std::string_view replacement_character = "\xef\xbf\xbd";

std::optional<char> byte_of(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return {};
  unsigned value = 0;
  const auto [stop, error] = std::from_chars(name.data() + 3, name.data() + 5, value, 16);
  if (error != std::errc() || stop != name.data() + 5) return {};
  return static_cast<char>(value);
}

// Joins consecutive bytes to a text; bytes that are not UTF-8 become one U+FFFD each.
std::vector<std::string> with_bytes_joined(const std::vector<std::string>& names) {
  std::vector<std::string> joined;
  std::string bytes;
  const auto end_bytes = [&] {
    if (valid_utf8(bytes) == bytes) {
      if (!bytes.empty()) joined.push_back(bytes);
    } else {
      joined.insert(joined.end(), bytes.size(), std::string(replacement_character));
    }
    bytes.clear();
  };
  for (const std::string& name : names) {
    if (const std::optional<char> byte = byte_of(name)) {
      bytes += *byte;
      continue;
    }
    end_bytes();
    joined.push_back(name);
  }
  end_bytes();
  return joined;
}

std::string replaced(const TextPattern& pattern, const std::string& by, const std::string& text) {
  std::string out;
  TextPattern::Scratch scratch;
  TextPattern::Match match{};
  size_t copied = 0;
  while (pattern.find(text, copied, match, scratch) && match.end > match.begin) {
    out.append(text, copied, match.begin - copied).append(by);
    copied = match.end;
  }
  out.append(text, copied);
  check_growth(text.size(), out.size(), "the decoder Replace");
  return out;
}

std::string stripped(std::string text, const std::string& what, size_t first, size_t last) {
  for (; first > 0 && text.starts_with(what); first--) text.erase(0, what.size());
  for (; last > 0 && text.ends_with(what); last--) text.erase(text.size() - what.size());
  return text;
}

}  // namespace

TokenDecoder::TokenDecoder(const Json& decoder, bool of_bytes, const std::string& path) {
  add(decoder, path);
  if (decoder.is_null()) rules_.push_back({.kind = of_bytes ? Kind::byte_level : Kind::fuse});
}

void TokenDecoder::add(const Json& part, const std::string& path) {
  if (part.is_null()) return;
  const std::string type = type_of_part(part), what = "the decoder " + type;
  if (type == "Sequence") {
    CHECK(json_member(part, "decoders").is_array(), "{}: {} has no list `decoders`", path, what);
    for (const Json& inside : json_member(part, "decoders")) add(inside, path);
  } else if (type == "ByteLevel") {
    rules_.push_back({.kind = Kind::byte_level});
  } else if (type == "ByteFallback") {
    rules_.push_back({.kind = Kind::byte_fallback});
  } else if (type == "Fuse") {
    rules_.push_back({.kind = Kind::fuse});
  } else if (type == "Replace") {
    Rule rule{.kind = Kind::replace, .text = text_member(part, "content", what, path)};
    rule.pattern.push_back(pattern_of(part, what, path));
    rules_.push_back(std::move(rule));
  } else if (type == "Strip") {
    const auto count = [&](const char* key) {
      const Json& value = json_member(part, key);
      CHECK(value.is_number_unsigned(), "{}: {} has {} = {}, which is not a count", path, what, key, json_text(value));
      return value.get<size_t>();
    };
    rules_.push_back({.kind = Kind::strip,
                      .text = text_member(part, "content", what, path),
                      .first = count("start"),
                      .last = count("stop")});
    CHECK(!rules_.back().text.empty(), "{}: {} has an empty content", path, what);
  } else if (type == "Metaspace") {
    const Json& scheme = json_member(part, "prepend_scheme");
    const bool never =
        scheme == "never" || (scheme.is_null() && !flag_member(part, "add_prefix_space", true, what, path));
    rules_.push_back(
        {.kind = Kind::metaspace, .text = text_member(part, "replacement", what, path), .prepends = !never});
    CHECK(!rules_.back().text.empty(), "{}: {} has an empty replacement", path, what);
  } else {
    FAIL(
        "{}: the decoder has type = {}; supported are ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and "
        "Sequence",
        path, json_text(json_member(part, "type")));
  }
}

std::string TokenDecoder::text_of(std::vector<std::string> names) const {
  const auto bytes = [&] {
    size_t sum = 0;
    for (const std::string& name : names) sum += name.size();
    return sum;
  };
  const size_t before = bytes();
  for (const Rule& rule : rules_) {
    check_growth(before, bytes(), "the decoder");
    switch (rule.kind) {
      case Kind::byte_level: {
        std::string all;
        for (const std::string& name : names) all += bytes_of_name(name).value_or(name);
        names.assign(1, valid_utf8(all));
        break;
      }
      case Kind::byte_fallback: names = with_bytes_joined(names); break;
      case Kind::fuse: {
        std::string all;
        for (const std::string& name : names) all += name;
        names.assign(1, all);
        break;
      }
      case Kind::replace:
        for (std::string& name : names) name = replaced(rule.pattern[0], rule.text, name);
        break;
      case Kind::strip:
        for (std::string& name : names) name = stripped(name, rule.text, rule.first, rule.last);
        break;
      case Kind::metaspace: {
        const TextPattern blank = TextPattern::of_text(rule.text);
        bool is_first = true;
        for (std::string& name : names) {
          name = replaced(blank, is_first && rule.prepends ? "" : " ", name);
          is_first = false;
        }
      }
    }
  }
  std::string text;
  for (const std::string& name : names) text += name;
  return text;
}

std::string TokenDecoder::bytes_inside(std::string name) const {
  const size_t before = name.size();
  bool is_joined = false;  // later steps see one whole text
  for (const Rule& rule : rules_) {
    check_growth(before, name.size(), "the decoder");
    if (rule.kind == Kind::byte_level) name = bytes_of_name(name).value_or(name);
    if (rule.kind == Kind::replace) name = replaced(rule.pattern[0], rule.text, name);
    if (rule.kind == Kind::strip && !is_joined) name = stripped(name, rule.text, rule.first, rule.last);
    if (rule.kind == Kind::metaspace) name = replaced(TextPattern::of_text(rule.text), " ", name);
    if (rule.kind == Kind::byte_fallback && !is_joined)
      if (const std::optional<char> byte = byte_of(name)) return std::string(1, *byte);
    is_joined = is_joined || rule.kind == Kind::fuse || rule.kind == Kind::byte_level;
  }
  return name;
}

}  // namespace megalith
