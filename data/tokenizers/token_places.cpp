#include "data/tokenizers/token_places.h"

#include <algorithm>

#include "data/tokenizers/characters.h"
#include "data/tokenizers/quoted.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr std::string_view blank_mark = "\xe2\x96\x81";  // U+2581, a blank in SentencePiece's vocabularies

size_t size_at(std::string_view text, size_t at) {
  return at < text.size() ? character_at(bytes_of(text) + at, bytes_of(text) + text.size()).bytes : 0;
}

bool is_blank(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  const Character c = character_at(bytes_of(text) + at, bytes_of(text) + text.size());
  return CharacterSet::white_space().contains(c.code_point) || text.substr(at).starts_with(blank_mark);
}

// Shortens a change by the characters at its beginning and end that are equal before and after.
TextNormalizer::Change narrowed(TextNormalizer::Change c, std::string_view before, std::string_view after) {
  const auto left = [&] { return std::min(c.end - c.begin, c.new_end - c.new_begin); };
  while (left() > 0) {
    const size_t size = size_at(before.substr(0, c.end), c.begin);
    if (size > left() || before.substr(c.begin, size) != after.substr(c.new_begin, size)) break;
    c.begin += size;
    c.new_begin += size;
  }
  while (left() > 0) {
    const size_t size = character_before(bytes_of(before) + c.begin, bytes_of(before) + c.end).bytes;
    if (size > left() || before.substr(c.end - size, size) != after.substr(c.new_end - size, size)) break;
    c.end -= size;
    c.new_end -= size;
  }
  return c;
}

}  // namespace

size_t TokenWalk::end_of(std::string_view token, size_t at) const {
  while (!token.empty()) {
    const std::string_view rest = text_.substr(at);
    if (!rest.empty() && rest[0] == token[0]) {
      token.remove_prefix(1);
      at++;
    } else if (token[0] == ' ' && rest.starts_with(blank_mark)) {
      token.remove_prefix(1);
      at += blank_mark.size();
    } else if (token.starts_with(blank_mark) && rest.starts_with(' ')) {
      token.remove_prefix(blank_mark.size());
      at++;
    } else {
      return std::string_view::npos;
    }
  }
  return at;
}

void TokenWalk::places_of(std::span<const int32_t> ids, std::vector<TextRange>& places) {
  size_t at = 0;
  for (const int32_t id : ids) {
    const std::string_view token = bytes_[static_cast<size_t>(id)];
    size_t begin = at, end = token.empty() ? std::string_view::npos : end_of(token, begin);
    if (end == std::string_view::npos && token.starts_with(' ') && at == 0) {
      end = end_of(token.substr(1), 0);
      if (end == 0) {  // the token is the blank added before the text
        places.push_back({offset_, offset_ + size_at(text_, 0)});
        continue;
      }
    }
    while (end == std::string_view::npos && !token.empty() && is_blank(text_, begin)) {
      begin += size_at(text_, begin);
      end = end_of(token, begin);
    }
    CHECK(end != std::string_view::npos,
          "the tokenizer makes token {}, {}, of a text that continues with {}: it is unknown which characters the "
          "token stands for, and so whether it counts; use a tokenizer that keeps the text, or write the text as the "
          "tokenizer does",
          id, quoted_bytes(token), quoted_bytes(text_.substr(at, 24)));
    places.push_back({offset_ + begin, offset_ + end});
    at = end;
  }
}

void places_before(const TextNormalizer& normalizer, const std::vector<TextNormalizer::Change>& changes,
                   std::string_view before, std::string_view normalized, std::span<TextRange> places) {
  std::vector<TextRange> origin(normalized.size());  // one for each byte
  if (normalizer.only_composes()) {
    size_t from = 0, at = 0;
    const auto unchanged = [&](size_t until) {
      for (; at < until; at++, from++) origin[at] = {from, from + 1};
    };
    for (const TextNormalizer::Change& whole : changes) {
      const TextNormalizer::Change change = narrowed(whole, before, normalized);
      unchanged(change.new_begin);
      for (; at < change.new_end; at++) origin[at] = {change.begin, change.end};
      from = change.end;
    }
    unchanged(normalized.size());
  } else {
    CHECK(normalizer.replaces_characters(),
          "the tokenizer's normalizer changes {}, so it is unknown which of its tokens count; normalize the text first",
          quoted_bytes(before.substr(0, 24)));
    // Bytes that are added before the text get the place of its first character.
    std::vector<TextRange> replaced;
    for (size_t from = 0; from < before.size();) {
      const size_t size = size_at(before, from);
      const std::string_view now = normalizer.replaced(before.substr(from, size));
      for (size_t i = 0; i < now.size(); i++)
        replaced.push_back(now.size() == size ? TextRange{from + i, from + i + 1} : TextRange{from, from + size});
      from += size;
    }
    CHECK(replaced.size() <= normalized.size(), "{} became {}", quoted_bytes(before), quoted_bytes(normalized));
    const size_t put_before = normalized.size() - replaced.size();
    for (size_t at = 0; at < normalized.size(); at++)
      origin[at] = at < put_before ? TextRange{0, size_at(before, 0)} : replaced[at - put_before];
  }
  for (TextRange& place : places)
    if (place.begin < place.end) place = {origin[place.begin].begin, origin[place.end - 1].end};
}

}  // namespace megalith
