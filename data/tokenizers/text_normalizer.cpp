#include "data/tokenizers/text_normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

constexpr int nfc_options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;

// Appends valid UTF-8 in a normal form.
void append_form(std::string_view valid, int options, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()), static_cast<utf8proc_ssize_t>(valid.size()),
                   &made, static_cast<utf8proc_option_t>(options));
  CHECK(bytes >= 0, "a text of {} bytes cannot be normalized: {}", valid.size(), utf8proc_errmsg(bytes));
  out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(bytes));
  std::free(made);
}

// Characters that NFC does not change and that do not combine with the one before them (The Unicode Standard, annex 15,
// section 9: those of combining class 0 whose quick check is Yes).
class Inert {
 public:
  Inert() : is_(num_code_points + 1, true) {
    for (char32_t c = 0x300; c < num_code_points; c++) {
      const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (property->combining_class != 0) is_[c] = false;
      if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) continue;
      utf8proc_int32_t parts[8];
      int last_class = 0;
      const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 8,
                                                 static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), &last_class);
      if (count > 1) is_[static_cast<size_t>(parts[count - 1])] = false;
      std::string before, after;
      utf8proc_uint8_t bytes[4];
      before.assign(reinterpret_cast<char*>(bytes),
                    static_cast<size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes)));
      append_form(before, nfc_options, after);
      if (before != after) is_[c] = false;
    }
    for (char32_t c = 0x1161; c <= 0x1175; c++) is_[c] = false;  // vowels and final consonants of Hangul
    for (char32_t c = 0x11a8; c <= 0x11c2; c++) is_[c] = false;
  }
  bool operator[](char32_t c) const { return is_[c]; }

 private:
  std::vector<bool> is_;
};

const Inert& inert() {
  static const Inert all;
  return all;
}

// Writes a text in NFC. Only characters that are not inert, and the character before each, are normalized.
void compose(std::string_view text, std::string& out, std::vector<TextNormalizer::Change>* changes) {
  const uint8_t *begin = bytes_of(text), *end = begin + text.size(), *p = begin, *copied = begin, *before = begin;
  while (p < end) {
    if (*p < 0xcc) {  // below U+0300
      if (!is_continuation(*p)) before = p;
      p++;
      continue;
    }
    const Character c = character_at(p, end);
    if (inert()[c.code_point]) {
      before = p;
      p += c.bytes;
      continue;
    }
    // `before` points at a stray byte or at the beginning of the character before this one, if there is one.
    const uint8_t* from = before < p && character_at(before, end).bytes == p - before &&
                                  character_at(before, end).code_point != stray_byte
                              ? before
                              : p;
    for (p += c.bytes; p < end; p += character_at(p, end).bytes)
      if (inert()[character_at(p, end).code_point]) break;
    if (from < copied) from = copied;
    out.append(reinterpret_cast<const char*>(copied), static_cast<size_t>(from - copied));
    const size_t new_begin = out.size();
    append_form({reinterpret_cast<const char*>(from), static_cast<size_t>(p - from)}, nfc_options, out);
    if (changes)
      changes->push_back({static_cast<size_t>(from - begin), static_cast<size_t>(p - begin), new_begin, out.size()});
    copied = before = p;
  }
  out.append(reinterpret_cast<const char*>(copied), static_cast<size_t>(end - copied));
}

bool is_composed(std::string_view text) {
  const uint8_t *p = bytes_of(text), *end = p + text.size();
  while (p < end) {
    if (*p < 0xcc) {
      p++;
      continue;
    }
    const Character c = character_at(p, end);
    if (!inert()[c.code_point]) return false;
    p += c.bytes;
  }
  return true;
}

// Writes a text in another normal form, without the bytes that are not characters.
void change_form(std::string_view text, int options, std::string& out) {
  const uint8_t *begin = bytes_of(text), *end = begin + text.size(), *from = begin;
  for (const uint8_t* p = begin; p <= end;) {
    const bool is_stray = p < end && character_at(p, end).code_point == stray_byte;
    if (p == end || is_stray) {
      if (p > from) append_form({reinterpret_cast<const char*>(from), static_cast<size_t>(p - from)}, options, out);
      if (is_stray) out += static_cast<char>(*p);
      from = p + 1;
      p++;
    } else {
      p += character_at(p, end).bytes;
    }
  }
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  const CharacterSet& white = CharacterSet::white_space();
  const uint8_t *begin = bytes_of(text), *end = begin + text.size();
  while (left && begin < end && white.contains(character_at(begin, end).code_point))
    begin += character_at(begin, end).bytes;
  while (right && begin < end && white.contains(character_before(begin, end).code_point))
    end -= character_before(begin, end).bytes;
  return {reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin)};
}

}  // namespace

TextNormalizer::TextNormalizer(const Json& normalizer, const std::string& path) { add(normalizer, path); }

void TextNormalizer::add(const Json& part, const std::string& path) {
  if (part.is_null()) return;
  const std::string type = type_of_part(part);
  if (type == "Sequence") {
    CHECK(json_member(part, "normalizers").is_array(), "{}: the normalizer Sequence has no list `normalizers`", path);
    for (const Json& inside : json_member(part, "normalizers")) add(inside, path);
  } else if (type == "NFC") {
    inert();
    rules_.push_back({.kind = Kind::compose});
  } else if (type == "NFD" || type == "NFKC" || type == "NFKD") {
    const int options = UTF8PROC_STABLE | (type == "NFKC" ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                        (type == "NFD" ? 0 : UTF8PROC_COMPAT);
    rules_.push_back({.kind = Kind::unicode_form, .options = options});
  } else if (type == "Prepend") {
    const std::string text = text_member(part, "prepend", "the normalizer Prepend", path);
    if (!text.empty()) rules_.push_back({.kind = Kind::prepend, .text = text});
  } else if (type == "Strip") {
    const bool left = json_member(part, "strip_left") != false, right = json_member(part, "strip_right") != false;
    if (left || right) rules_.push_back({.kind = Kind::strip, .strips_left = left, .strips_right = right});
  } else if (type == "Replace") {
    Rule rule{.kind = Kind::replace, .text = text_member(part, "content", "the normalizer Replace", path)};
    rule.pattern.push_back(pattern_of(part, "the normalizer Replace", path, &rule.replaces));
    if (rule.replaces.empty() || rule.replaces != rule.text) rules_.push_back(std::move(rule));
  } else {
    FAIL("{}: the normalizer has type = {}; supported are NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip and Sequence",
         path, json_text(json_member(part, "type")));
  }
}

void TextNormalizer::replace(const Rule& rule, std::string_view text, std::string& out, TextPattern::Scratch& scratch) {
  size_t copied = 0;
  TextPattern::Match match{};
  for (size_t from = 0; rule.pattern[0].find(text, from, match, scratch);) {
    out.append(text.substr(copied, match.begin - copied)).append(rule.text);
    copied = match.end;
    from = match.end + (match.end == match.begin ? 1 : 0);
    if (from > text.size()) break;
  }
  out.append(text.substr(copied));
}

std::string_view TextNormalizer::apply(std::string_view text, bool continues, Scratch& scratch,
                                       std::vector<Change>* changes) const {
  const size_t before = text.size();
  for (const Rule& rule : rules_) {
    if (text.empty()) return text;
    if (rule.kind == Kind::strip) {
      text = stripped(text, rule.strips_left, rule.strips_right);
      continue;
    }
    if ((rule.kind == Kind::prepend && continues) || (rule.kind == Kind::compose && is_composed(text))) continue;
    if (rule.kind == Kind::unicode_form &&
        std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; }))
      continue;
    std::string& out = scratch.other;  // `text` may be in scratch.text
    out.clear();
    switch (rule.kind) {
      case Kind::prepend: out.append(rule.text).append(text); break;
      case Kind::replace: replace(rule, text, out, scratch.pattern); break;
      case Kind::compose: compose(text, out, changes); break;
      default: change_form(text, rule.options, out);
    }
    check_growth(before, out.size(), "the normalizer");
    scratch.text.swap(scratch.other);
    text = scratch.text;
  }
  return text;
}

bool TextNormalizer::only_composes() const {
  return rules_.empty() || (rules_.size() == 1 && rules_[0].kind == Kind::compose);
}

bool TextNormalizer::replaces_characters() const {
  return std::all_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    if (rule.kind == Kind::prepend) return &rule == &rules_[0];
    if (rule.kind != Kind::replace || rule.replaces.empty()) return false;
    return character_at(bytes_of(rule.replaces), bytes_of(rule.replaces) + rule.replaces.size()).bytes ==
           rule.replaces.size();
  });
}

std::string_view TextNormalizer::replaced(std::string_view character) const {
  for (const Rule& rule : rules_)
    if (rule.kind == Kind::replace && rule.replaces == character) character = rule.text;
  return character;
}

}  // namespace megalith
