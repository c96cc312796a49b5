#include "data/tokenizers/text_pattern.h"

#include <algorithm>

#include "kernels/system/check.h"
#include "kernels/system/counted.h"

namespace megalith {

namespace {
constexpr int64_t most_tries = 10'000'000;  // equal to Oniguruma's retry-limit-in-match in `tokenizers`
}

TextPattern TextPattern::of_text(std::string_view text) {
  TextPattern pattern;
  pattern.text_ = text;
  return pattern;
}

// Returns the end of a match of a node and all its successors, or null.
const uint8_t* TextPattern::match(int at, const uint8_t* begin, const uint8_t* p, const uint8_t* end,
                                  Scratch& scratch) const {
  const size_t outer = scratch.choices.size();
  for (;;) {
    const Node& node = nodes_[static_cast<size_t>(at)];
    bool continues = true;
    at = node.next;
    switch (node.kind) {
      case Kind::accept: scratch.choices.resize(outer); return p;
      case Kind::literal:
      case Kind::one_of: {
        if (p == end) {
          scratch.saw_end = true;
          continues = false;
          break;
        }
        const Character c = character_at(p, end);
        continues = node.kind == Kind::literal ? c.code_point == node.literal : (sets_of(c.code_point) & node.set) != 0;
        p += c.bytes;
        break;
      }
      case Kind::run: {
        uint32_t count = 0;
        const uint8_t* lowest = p;
        for (; count < node.most; count++) {
          if (p == end) {
            scratch.saw_end = true;
            break;
          }
          const Character c = character_at(p, end);
          if ((sets_of(c.code_point) & node.set) == 0) break;
          p += c.bytes;
          if (count < node.least) lowest = p;
        }
        continues = count >= node.least;
        if (continues && node.gives_back && p > lowest) scratch.choices.push_back({node.next, p, lowest});
        break;
      }
      case Kind::choice: scratch.choices.push_back({node.other, p, nullptr}); break;
      case Kind::atomic:
      case Kind::look_ahead: {
        const uint8_t* inside = match(node.other, begin, p, end, scratch);
        continues = (inside != nullptr) != node.is_negated;
        if (node.kind == Kind::atomic && continues) p = inside;
        break;
      }
      case Kind::look_behind: {
        const uint8_t* from = p;
        uint32_t left = node.least;
        for (; left > 0 && from > begin; left--) from -= character_before(begin, from).bytes;
        continues = (left == 0 && match(node.other, begin, from, p, scratch) != nullptr) != node.is_negated;
        break;
      }
      case Kind::begins: continues = p == begin; break;
      case Kind::ends:
        scratch.saw_end = scratch.saw_end || p == end;
        continues = p == end;
        break;
    }
    if (continues) continue;
    if (scratch.choices.size() == outer) return nullptr;
    CHECK(++scratch.tries <= most_tries + 100 * (end - begin),
          "{}: the pattern tries more than {} ways to match a text of {}: it backtracks too much", where_, most_tries,
          counted(end - begin, "byte"));
    Scratch::Choice& last = scratch.choices.back();
    at = last.node;
    if (last.lowest == nullptr) {
      p = last.at;
      scratch.choices.pop_back();
      continue;
    }
    p = last.at -= character_before(last.lowest, last.at).bytes;
    if (last.at == last.lowest) scratch.choices.pop_back();
  }
}

const uint8_t* TextPattern::match_any(const uint8_t* begin, const uint8_t* p, const uint8_t* end,
                                      Scratch& scratch) const {
  if (p < end && *p < 0x80) {
    for (const int way : ways_by_byte_[*p])
      if (const uint8_t* found = match(ways_[static_cast<size_t>(way)].node, begin, p, end, scratch)) return found;
    return nullptr;
  }
  const char32_t first = p < end ? character_at(p, end).code_point : stray_byte;
  const uint64_t sets = sets_of(first);
  for (const Way& way : ways_) {
    const bool may = p == end || way.may_begin_with_any || (way.sets & sets) != 0 ||
                     std::find(way.literals.begin(), way.literals.end(), first) != way.literals.end();
    if (!may) continue;
    if (const uint8_t* found = match(way.node, begin, p, end, scratch)) return found;
  }
  return nullptr;
}

bool TextPattern::find(std::string_view text, size_t from, Match& found, Scratch& scratch) const {
  if (!text_.empty() || nodes_.empty()) {
    const size_t at = text_.empty() ? std::string_view::npos : text.find(text_, from);
    if (at == std::string_view::npos) {
      scratch.saw_end = true;
      return false;
    }
    found = {at, at + text_.size()};
    return true;
  }
  const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t *end = begin + text.size(), *p = begin + from;
  scratch.tries = 0;
  while (p < end || (p == end && may_be_empty_)) {
    if (p < end && begins_[*p] == 0) {
      p++;  // below 0x80
      continue;
    }
    if (const uint8_t* behind = match_any(begin, p, end, scratch)) {
      found = {static_cast<size_t>(p - begin), static_cast<size_t>(behind - begin)};
      return true;
    }
    if (p == end) break;
    p += character_at(p, end).bytes;
  }
  scratch.saw_end = true;
  return false;
}

size_t TextPattern::undecided_from(std::string_view text, size_t from, Scratch& scratch) const {
  if (nodes_.empty()) return std::max(from, text.size() - std::min(text.size(), std::max<size_t>(text_.size(), 1) - 1));
  const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t *end = begin + text.size(), *p = begin + from;
  while (p < end) {
    scratch.saw_end = false;
    scratch.tries = 0;
    match_any(begin, p, end, scratch);
    if (scratch.saw_end) break;
    p += character_at(p, end).bytes;
  }
  return static_cast<size_t>(p - begin);
}

}  // namespace megalith
