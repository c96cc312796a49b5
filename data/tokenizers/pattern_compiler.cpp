#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "data/tokenizers/pattern_parser.h"
#include "data/tokenizers/text_pattern.h"
#include "kernels/system/check.h"

namespace megalith {

namespace {
constexpr size_t most_sets = 64, most_nodes = 20'000;
}  // namespace

// Compiles a pattern to a program, from its end to its beginning, so that each node knows its successor.
class PatternCompiler {
 public:
  PatternCompiler(TextPattern& pattern, const std::string& where) : to_(pattern), where_(where) {}

  void compile(const PatternPart& whole) {
    const int accept = add({.kind = TextPattern::Kind::accept});
    std::vector<int> ways;
    if (const PatternPart* parts = &whole; parts->kind == PatternPart::Kind::alternatives)
      for (const PatternPart& way : parts->inside) ways.push_back(node_of(way, accept));
    else
      ways.push_back(node_of(whole, accept));
    to_.may_be_empty_ = whole.may_be_empty();
    tabulate();
    for (TextPattern::Node& node : to_.nodes_)
      if (node.kind == TextPattern::Kind::run && node.gives_back) node.gives_back = may_give_back(node);
    to_.ways_by_byte_.resize(0x80);
    to_.begins_.assign(256, 0);
    for (const int way : ways) add_way(way);
  }

 private:
  int add(TextPattern::Node node) {
    CHECK(to_.nodes_.size() < most_nodes, "{}: the pattern is longer than {} steps; it repeats groups too often",
          where_, most_nodes);
    to_.nodes_.push_back(node);
    return static_cast<int>(to_.nodes_.size()) - 1;
  }

  uint64_t bit_of(const CharacterSet& set) {
    for (size_t i = 0; i < sets_.size(); i++)
      if (std::equal(sets_[i].ranges().begin(), sets_[i].ranges().end(), set.ranges().begin(), set.ranges().end(),
                     [](const CodePoints& a, const CodePoints& b) { return a.first == b.first && a.last == b.last; }))
        return uint64_t{1} << i;
    CHECK(sets_.size() < most_sets, "{}: the pattern has more than {} different classes of characters", where_,
          most_sets);
    sets_.push_back(set);
    return uint64_t{1} << (sets_.size() - 1);
  }

  int node_of(const PatternPart& part, int next) {
    using Kind = TextPattern::Kind;
    switch (part.kind) {
      case PatternPart::Kind::character:
        if (part.is_one_literal())
          return add({.kind = Kind::literal, .next = next, .literal = part.set.ranges()[0].first});
        return add({.kind = Kind::one_of, .next = next, .set = bit_of(part.set)});
      case PatternPart::Kind::sequence:
        for (auto inside = part.inside.rbegin(); inside != part.inside.rend(); ++inside) next = node_of(*inside, next);
        return next;
      case PatternPart::Kind::alternatives: {
        int all = node_of(part.inside.back(), next);
        for (auto way = part.inside.rbegin() + 1; way != part.inside.rend(); ++way)
          all = add({.kind = Kind::choice, .next = node_of(*way, next), .other = all});
        return all;
      }
      case PatternPart::Kind::repeat: return repeat(part, next);
      case PatternPart::Kind::look_ahead:
      case PatternPart::Kind::atomic: {
        const int inside = node_of(part.inside[0], add({.kind = Kind::accept}));
        return add({.kind = part.kind == PatternPart::Kind::atomic ? Kind::atomic : Kind::look_ahead,
                    .is_negated = part.is_negated,
                    .next = next,
                    .other = inside});
      }
      case PatternPart::Kind::look_behind: {
        to_.looks_back_ = true;
        const uint32_t length = length_of(part.inside[0]);
        const int inside = node_of(part.inside[0], add({.kind = Kind::accept}));
        return add(
            {.kind = Kind::look_behind, .is_negated = part.is_negated, .next = next, .other = inside, .least = length});
      }
      case PatternPart::Kind::begins: to_.looks_back_ = true; return add({.kind = Kind::begins, .next = next});
      case PatternPart::Kind::ends: return add({.kind = Kind::ends, .next = next});
    }
    return next;
  }

  uint32_t length_of(const PatternPart& part) const {
    if (part.kind == PatternPart::Kind::character) return 1;
    uint32_t length = 0;
    if (part.kind == PatternPart::Kind::sequence)
      for (const PatternPart& inside : part.inside) length += length_of(inside);
    else if (part.kind == PatternPart::Kind::alternatives) {
      length = length_of(part.inside[0]);
      for (const PatternPart& inside : part.inside)
        CHECK(length_of(inside) == length, "{}: the pattern has a look-behind with alternatives of different lengths",
              where_);
    } else {
      FAIL("{}: the pattern has a look-behind with more than characters and groups, which is not supported", where_);
    }
    return length;
  }

  int repeat(const PatternPart& part, int next) {
    using Kind = TextPattern::Kind;
    const PatternPart& inside = part.inside[0];
    if (inside.kind == PatternPart::Kind::character && !part.is_lazy)
      return add({.kind = Kind::run,
                  .gives_back = !part.is_possessive,
                  .next = next,
                  .set = bit_of(inside.set),
                  .least = part.least,
                  .most = part.most});
    if (part.is_possessive) {
      PatternPart plain = part;
      plain.is_possessive = false;
      const int body = node_of(plain, add({.kind = Kind::accept}));
      return add({.kind = Kind::atomic, .next = next, .other = body});
    }
    const auto maybe = [&](int more, int over) {
      return part.is_lazy ? add({.kind = Kind::choice, .next = over, .other = more})
                          : add({.kind = Kind::choice, .next = more, .other = over});
    };
    if (part.most == no_most) {
      const int loop = add({.kind = Kind::choice});
      const int body = node_of(inside, loop);
      to_.nodes_[static_cast<size_t>(loop)].next = part.is_lazy ? next : body;
      to_.nodes_[static_cast<size_t>(loop)].other = part.is_lazy ? body : next;
      next = loop;
    } else {
      int rest = next;
      for (uint32_t i = part.least; i < part.most; i++) rest = maybe(node_of(inside, rest), next);
      next = rest;
    }
    for (uint32_t i = 0; i < part.least; i++) next = node_of(inside, next);
    return next;
  }

  // Writes the sets of each character into pages; equal pages are kept once.
  void tabulate() {
    std::vector<std::pair<char32_t, uint64_t>> changes;  // the beginnings and ends of sets
    for (size_t i = 0; i < sets_.size(); i++)
      for (const CodePoints& range : sets_[i].ranges()) {
        changes.emplace_back(range.first, uint64_t{1} << i);
        changes.emplace_back(range.last + 1, uint64_t{1} << i);
      }
    std::sort(changes.begin(), changes.end());
    std::map<std::vector<uint64_t>, uint16_t> known;
    constexpr size_t page = size_t{1} << TextPattern::page_bits;
    std::vector<uint64_t> filled(page);
    uint64_t now = 0;
    auto change = changes.begin();
    for (char32_t first = 0; first <= stray_byte; first += page) {
      for (char32_t i = 0; i < page; i++) {
        for (; change != changes.end() && change->first == first + i; ++change) now ^= change->second;
        filled[i] = now;
        if (combinations_.empty() || combinations_.back() != now) combinations_.push_back(now);
      }
      const auto [place, is_new] = known.emplace(filled, static_cast<uint16_t>(known.size()));
      if (is_new) to_.pages_.insert(to_.pages_.end(), filled.begin(), filled.end());
      to_.page_of_.push_back(place->second);
    }
  }

  struct First {
    bool is_any = false;
    uint64_t sets = 0;
    std::set<char32_t> literals;
  };

  // Collects the characters with which the rest of a match may begin. Look-arounds count as empty.
  void first_of(int at, First& first, std::set<int>& seen) const {
    using Kind = TextPattern::Kind;
    if (!seen.insert(at).second) return;
    const TextPattern::Node& node = to_.nodes_[static_cast<size_t>(at)];
    switch (node.kind) {
      case Kind::literal: first.literals.insert(node.literal); return;
      case Kind::one_of: first.sets |= node.set; return;
      case Kind::run:
        first.sets |= node.set;
        if (node.least == 0) first_of(node.next, first, seen);
        return;
      case Kind::choice:
        first_of(node.next, first, seen);
        first_of(node.other, first, seen);
        return;
      case Kind::look_ahead:
      case Kind::look_behind: first_of(node.next, first, seen); return;
      default: first.is_any = true; return;
    }
  }
  First first_of(int at) const {
    First first;
    std::set<int> seen;
    first_of(at, first, seen);
    return first;
  }

  // A run never has to end earlier if the next node begins with a character outside the run's set.
  bool may_give_back(const TextPattern::Node& run) const {
    const TextPattern::Node& next = to_.nodes_[static_cast<size_t>(run.next)];
    if (next.kind == TextPattern::Kind::accept) return false;
    const First first = first_of(run.next);
    if (first.is_any) return true;
    const auto meets = [&](uint64_t sets) { return (sets & run.set) != 0 && (sets & first.sets) != 0; };
    return std::any_of(combinations_.begin(), combinations_.end(), meets) ||
           std::any_of(first.literals.begin(), first.literals.end(),
                       [&](char32_t c) { return (to_.sets_of(c) & run.set) != 0; });
  }

  void add_way(int node) {
    const First first = first_of(node);
    const int number = static_cast<int>(to_.ways_.size());
    to_.ways_.push_back({node, first.is_any, first.sets, {first.literals.begin(), first.literals.end()}});
    for (char32_t byte = 0; byte < 256; byte++) {
      const bool may =
          first.is_any || byte >= 0x80 || (to_.sets_of(byte) & first.sets) != 0 || first.literals.contains(byte);
      if (may && byte < 0x80) to_.ways_by_byte_[byte].push_back(number);
      if (may) to_.begins_[byte] = 1;
    }
  }

  TextPattern& to_;
  const std::string& where_;
  std::vector<CharacterSet> sets_;
  std::vector<uint64_t> combinations_;  // of sets: those that contain the same characters
};

TextPattern::TextPattern(std::string_view pattern, const std::string& where) : where_(where) {
  PatternCompiler(*this, where).compile(parse_pattern(pattern, where));
}

}  // namespace megalith
