#include "data/tokenizers/text_cutter.h"

#include <algorithm>

#include "data/tokenizers/bpe_names.h"
#include "data/tokenizers/characters.h"
#include "data/tokenizers/tokenizer_parts.h"
#include "kernels/system/check.h"
#include "kernels/system/json.h"

namespace megalith {

namespace {

using Json = nlohmann::json;

// Punctuation as in `tokenizers`: ASCII's, and category P of Unicode 8, that is today's P without later additions, plus
// characters that have left it since.
const std::string later_punctuation =
    R"(\x{61d}\x{9fd}\x{a76}\x{c77}\x{c84}\x{1b4e}-\x{1b4f}\x{1b7d}-\x{1b7f}\x{2e43}-\x{2e4f})"
    R"(\x{2e52}-\x{2e5d}\x{10d6e}\x{10ead}\x{10f55}-\x{10f59}\x{10f86}-\x{10f89}\x{113d4}-\x{113d5})"
    R"(\x{113d7}-\x{113d8}\x{1144b}-\x{1144f}\x{1145a}-\x{1145b}\x{1145d}\x{11660}-\x{1166c}\x{116b9})"
    R"(\x{1183b}\x{11944}-\x{11946}\x{119e2}\x{11a3f}-\x{11a46}\x{11a9a}-\x{11a9c}\x{11a9e}-\x{11aa2})"
    R"(\x{11b00}-\x{11b09}\x{11be1}\x{11c41}-\x{11c45}\x{11c70}-\x{11c71}\x{11ef7}-\x{11ef8})"
    R"(\x{11f43}-\x{11f4f}\x{11fff}\x{12ff1}-\x{12ff2}\x{16d6d}-\x{16d6f}\x{16e97}-\x{16e9a}\x{16fe2})"
    R"(\x{1e5ff}\x{1e95e}-\x{1e95f})";
const std::string one_punctuation = "(?![" + later_punctuation + R"(])[!-/:-@\[-`{-~\p{P}\x{166d}\x{111c9}])";
const std::string much_punctuation = "(?:" + one_punctuation + ")+";

// Numbers of Unicode 17, and Unicode's word characters, both as in Rust.
const std::string number = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])";
const std::string in_words = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9})"
                             R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
const std::string word_or_signs = "[" + in_words + "]+|[^" + in_words + R"(\s]+)";

}  // namespace

TextCutter::TextCutter(const Json& pre_tokenizer, const std::string& path) {
  add(pre_tokenizer, path);
  gives_bytes_ = !rules_.empty() && rules_.back().kind == Kind::byte_level;
}

const Pretokenizer& TextCutter::pretokenizer() {
  static const Pretokenizer shared;
  return shared;
}

void TextCutter::add(const Json& part, const std::string& path) {
  if (part.is_null()) return;
  const std::string type = type_of_part(part), what = "the pre-tokenizer " + type;
  if (type == "Sequence") {
    CHECK(json_member(part, "pretokenizers").is_array(), "{}: {} has no list `pretokenizers`", path, what);
    for (const Json& inside : json_member(part, "pretokenizers")) add(inside, path);
  } else if (type == "Split") {
    add_split(part, path);
  } else if (type == "Digits") {
    const bool single = flag_member(part, "individual_digits", false, what, path);
    add_pattern(single ? number : number + "+", Behavior::isolated, path);
  } else if (type == "Punctuation") {
    const Behavior behavior = behavior_of(part, what, path);
    if (behavior == Behavior::contiguous)
      add_pattern(much_punctuation, Behavior::isolated, path);
    else
      add_pattern(one_punctuation, behavior, path);
  } else if (type == "Whitespace") {
    add_pattern(word_or_signs, Behavior::removed, path, true);
  } else if (type == "WhitespaceSplit") {
    add_pattern(R"(\s)", Behavior::removed, path);
  } else if (type == "ByteLevel") {
    const bool has_prefix = flag_member(part, "add_prefix_space", true, what, path);
    const bool cuts = flag_member(part, "use_regex", true, what, path);
    rules_.push_back({.kind = Kind::byte_level,
                      .cuts_as_gpt2 = cuts,
                      .prefix = has_prefix ? Prefix::always : Prefix::never,
                      .cuts = cuts});
  } else if (type == "Metaspace") {
    Rule rule{.kind = Kind::metaspace, .prefix = Prefix::always};
    rule.blank = text_member(part, "replacement", what, path);
    CHECK(!rule.blank.empty(), "{}: {} has an empty replacement", path, what);
    const Json& scheme = json_member(part, "prepend_scheme");
    if (scheme == "first")
      rule.prefix = Prefix::first;
    else if (scheme == "never" || (scheme.is_null() && !flag_member(part, "add_prefix_space", true, what, path)))
      rule.prefix = Prefix::never;
    else
      CHECK(scheme == "always" || scheme.is_null(),
            "{}: {} has prepend_scheme = {}; supported are always, first and never", path, what, json_text(scheme));
    rule.cuts = flag_member(part, "split", true, what, path);
    rules_.push_back(std::move(rule));
  } else {
    FAIL(
        "{}: the pre-tokenizer has type = {}; supported are Split, ByteLevel, Digits, Punctuation, Whitespace, "
        "WhitespaceSplit, Metaspace and Sequence",
        path, json_text(json_member(part, "type")));
  }
}

TextCutter::Behavior TextCutter::behavior_of(const Json& part, const std::string& what, const std::string& path) {
  const Json& behavior = json_member(part, "behavior");
  if (behavior.is_null() || behavior == "Isolated" || behavior == "isolated") return Behavior::isolated;
  if (behavior == "Removed" || behavior == "removed") return Behavior::removed;
  if (behavior == "Contiguous" || behavior == "contiguous") return Behavior::contiguous;
  if (behavior == "MergedWithPrevious" || behavior == "merged_with_previous") return Behavior::with_previous;
  if (behavior == "MergedWithNext" || behavior == "merged_with_next") return Behavior::with_next;
  FAIL("{}: {} has behavior = {}; supported are Isolated, Removed, Contiguous, MergedWithPrevious and MergedWithNext",
       path, what, json_text(behavior));
}

void TextCutter::add_split(const Json& part, const std::string& path) {
  const std::string what = "the pre-tokenizer Split";
  Rule rule{.kind = Kind::split};
  rule.behavior = behavior_of(part, what, path);
  rule.is_inverted = flag_member(part, "invert", false, what, path);
  const Json& regex = json_member(json_member(part, "pattern"), "Regex");
  // The matches of GPT-2's pattern cover a text.
  const bool gives_matches =
      rule.behavior == Behavior::isolated || (rule.behavior == Behavior::removed && rule.is_inverted);
  if (gives_matches && regex.is_string() && is_gpt2_pattern(regex.get<std::string>()))
    rule.cuts_as_gpt2 = true;
  else
    rule.pattern.push_back(pattern_of(part, what, path));
  rules_.push_back(std::move(rule));
}

void TextCutter::add_pattern(const std::string& pattern, Behavior behavior, const std::string& path, bool is_inverted) {
  Rule rule{.kind = Kind::split, .behavior = behavior, .is_inverted = is_inverted};
  rule.pattern.emplace_back(pattern, path);
  rules_.push_back(std::move(rule));
}

bool TextCutter::leaves_whole() const {
  return rules_.empty() || (rules_.size() == 1 && rules_[0].kind == Kind::metaspace && !rules_[0].cuts);
}

std::string_view TextCutter::blank() const {
  return rules_.size() == 1 && rules_[0].kind == Kind::metaspace ? std::string_view(rules_[0].blank) : " ";
}

void TextCutter::cut(std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const {
  scratch.rules.resize(rules_.size());
  if (!text.empty()) cut(0, text, place, pieces, scratch);
}

void TextCutter::cut(size_t rule, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const {
  if (rule == rules_.size()) return pieces.take(text);
  switch (rules_[rule].kind) {
    case Kind::split: return split(rule, text, place, pieces, scratch);
    case Kind::byte_level: return byte_level(rule, text, place, pieces, scratch);
    case Kind::metaspace: return metaspace(rule, text, place, pieces, scratch);
  }
}

// Passes a part of a rule's text to the next rule.
void TextCutter::give(size_t rule, std::string_view text, size_t begin, size_t end, Place place, Pieces& pieces,
                      Scratch& scratch) const {
  if (begin == end) return;
  if (begin > 0) place = {.begins = false};
  cut(rule + 1, text.substr(begin, end - begin), place, pieces, scratch);
}

void TextCutter::split(size_t number, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const {
  const Rule& rule = rules_[number];
  if (rule.cuts_as_gpt2) {
    pretokenizer().each_pretoken(text, [&](std::string_view piece) {
      const auto begin = static_cast<size_t>(piece.data() - text.data());
      give(number, text, begin, begin + piece.size(), place, pieces, scratch);
    });
    return;
  }
  const TextPattern& pattern = rule.pattern[0];
  const bool simple = rule.behavior == Behavior::isolated || rule.behavior == Behavior::removed;
  const bool keeps_matches = rule.behavior != Behavior::removed || rule.is_inverted;
  const bool keeps_gaps = rule.behavior != Behavior::removed || !rule.is_inverted;
  std::vector<Scratch::Stretch>& parts = scratch.rules[number].parts;
  parts.clear();
  const auto part = [&](size_t begin, size_t end, bool is_match) {
    if (simple && (is_match ? keeps_matches : keeps_gaps)) give(number, text, begin, end, place, pieces, scratch);
    if (!simple) parts.push_back({begin, end, is_match != rule.is_inverted});
  };
  const auto* bytes = bytes_of(text);
  size_t done = 0, from = 0, last_end = text.size() + 1;
  for (TextPattern::Match match{}; from <= text.size() && pattern.find(text, from, match, scratch.pattern);) {
    if (match.begin == match.end &&
        match.end == last_end) {  // an empty match that touches the previous match does not count
      from += from < text.size() ? character_at(bytes + from, bytes + text.size()).bytes : 1;
      continue;
    }
    if (match.begin > done) part(done, match.begin, false);
    part(match.begin, match.end, true);
    done = from = last_end = match.end;
  }
  if (done < text.size()) part(done, text.size(), false);
  if (simple) return;

  // Joins neighbouring parts to pieces, in place.
  std::vector<Scratch::Stretch> joined;
  const auto join = [&](const Scratch::Stretch& next, bool with_last) {
    if (with_last && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, next.begin);
      joined.back().end = std::max(joined.back().end, next.end);
    } else {
      joined.push_back(next);
    }
  };
  bool last_is_match = false;
  const auto take = [&](const Scratch::Stretch& next) {
    join(next,
         rule.behavior == Behavior::contiguous ? next.is_match == last_is_match : next.is_match && !last_is_match);
    last_is_match = next.is_match;
  };
  if (rule.behavior == Behavior::with_next) {
    std::for_each(parts.rbegin(), parts.rend(), take);
    std::reverse(joined.begin(), joined.end());
  } else {
    std::for_each(parts.begin(), parts.end(), take);
  }
  for (const Scratch::Stretch& piece : joined) give(number, text, piece.begin, piece.end, place, pieces, scratch);
}

void TextCutter::byte_level(size_t number, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const {
  const Rule& rule = rules_[number];
  std::string& changed = scratch.rules[number].text;
  if (rule.prefix == Prefix::always && !place.continues && text[0] != ' ') {
    changed.assign(" ").append(text);
    text = changed;
  }
  if (number + 1 == rules_.size()) {
    if (rule.cuts)
      pretokenizer().each_pretoken(text, [&](std::string_view piece) { pieces.take(piece); });
    else
      pieces.take(text);
    return;
  }
  std::string named;
  const auto piece = [&](std::string_view bytes) {
    named.clear();
    for (const char byte : bytes) named += name_of_byte(byte);
    cut(number + 1, named, bytes.data() == text.data() ? place : Place{.begins = false}, pieces, scratch);
  };
  if (!rule.cuts) return piece(text);
  pretokenizer().each_pretoken(text, piece);
}

void TextCutter::metaspace(size_t number, std::string_view text, Place place, Pieces& pieces, Scratch& scratch) const {
  const Rule& rule = rules_[number];
  std::string& changed = scratch.rules[number].text;
  changed.clear();
  const bool has_blank = text.starts_with(' ') || text.starts_with(rule.blank);
  if (!has_blank && !place.continues &&
      (rule.prefix == Prefix::always || (rule.prefix == Prefix::first && place.begins)))
    changed += rule.blank;
  for (const char byte : text)
    if (byte == ' ')
      changed += rule.blank;
    else
      changed += byte;
  if (!rule.cuts) return give(number, changed, 0, changed.size(), place, pieces, scratch);
  for (size_t begin = 0; begin < changed.size();) {
    const bool has_blank_there = std::string_view(changed).substr(begin).starts_with(rule.blank);
    const size_t behind = begin + (has_blank_there ? rule.blank.size() : 0);
    const size_t end = std::min(changed.find(rule.blank, behind), changed.size());
    give(number, changed, begin, end, place, pieces, scratch);
    begin = end;
  }
}

size_t TextCutter::last_cut(std::string_view text, Scratch& scratch) const {
  scratch.rules.resize(rules_.size());
  // A later rule would also put its blank before the text after the cut.
  for (size_t i = 1; i < rules_.size(); i++)
    if (rules_[i].prefix != Prefix::never) return 0;
  return last_cut(0, text, scratch);
}

size_t TextCutter::last_cut(size_t number, std::string_view text, Scratch& scratch) const {
  if (number == rules_.size() || text.empty()) return 0;
  const Rule& rule = rules_[number];
  if (rule.cuts_as_gpt2) return pretokenizer().last_cut(text);
  if (rule.kind == Kind::byte_level) return 0;
  if (rule.kind == Kind::metaspace) {
    if (!rule.cuts) return 0;
    for (size_t cut = text.size() - 1; cut > 0; cut--)
      if (text[cut] == ' ' || text.substr(cut).starts_with(rule.blank)) return cut;
    return 0;
  }
  const TextPattern& pattern = rule.pattern[0];
  if (pattern.looks_back()) return 0;
  if (rule.behavior != Behavior::isolated && rule.behavior != Behavior::removed) return 0;
  size_t done = 0, cut = 0;
  scratch.pattern.saw_end = false;
  for (TextPattern::Match match{}; pattern.find(text, done, match, scratch.pattern);) {
    if (scratch.pattern.saw_end || match.begin == match.end) break;
    cut = done = match.end;
  }
  if (rule.behavior == Behavior::removed && rule.is_inverted) return cut;  // text between matches is left out
  const size_t undecided = pattern.undecided_from(text, done, scratch.pattern);
  const size_t inside = last_cut(number + 1, text.substr(done, undecided - done), scratch);
  return inside > 0 ? done + inside : cut;
}

}  // namespace megalith
