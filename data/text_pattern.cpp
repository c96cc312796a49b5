#include "data/text_pattern.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr uint32_t no_most = UINT32_MAX;
constexpr size_t most_sets = 64, most_nodes = 20'000;
constexpr int deepest_group = 100;

// A part of a pattern, as it is written.
struct Part {
  enum class Kind { character, sequence, alternatives, repeat, look_ahead, look_behind, atomic, begins, ends };
  Kind kind = Kind::sequence;
  CharacterSet set = {};  // of a character
  std::vector<Part> inside = {};
  uint32_t least = 1, most = 1;
  bool is_lazy = false, is_possessive = false, is_negated = false, ignores_case = false;

  bool is_one_literal() const { return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last; }
  bool may_be_empty() const {
    const auto may = [](const Part& part) { return part.may_be_empty(); };
    switch (kind) {
      case Kind::character: return false;
      case Kind::sequence:
      case Kind::atomic: return std::all_of(inside.begin(), inside.end(), may);
      case Kind::alternatives: return std::any_of(inside.begin(), inside.end(), may);
      case Kind::repeat: return least == 0 || inside[0].may_be_empty();
      default: return true;
    }
  }
};

// Case folding of Unicode: which characters are one but for case, and the first two of those that fold to several.
struct Folding {
  std::map<char32_t, std::vector<CodePoints>> same;  // by what they fold to
  std::set<std::pair<char32_t, char32_t>> pairs;
  std::set<char32_t> several;

  Folding() {
    for (char32_t c = 0; c < num_code_points; c++) {
      utf8proc_int32_t folded[8];
      int last = 0;
      const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &last);
      if (count == 1) same[static_cast<char32_t>(folded[0])].push_back({c, c});
      if (count < 2) continue;
      pairs.emplace(folded[0], folded[1]);
      several.insert(c);
    }
  }
  static char32_t of(char32_t c) {
    utf8proc_int32_t folded[8];
    int last = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &last);
    return count == 1 ? static_cast<char32_t>(folded[0]) : c;
  }
};

class PatternParser {
 public:
  PatternParser(std::string_view pattern, const std::string& where) : all_(pattern), rest_(pattern), where_(where) {}

  Part read() {
    Part part = alternatives();
    if (!rest_.empty()) refuse(")");
    return part;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    FAIL("{}: the pattern {} has `{}` at its byte {}, which is not known here", where_, all_, what,
         all_.size() - rest_.size());
  }

  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }

  char32_t next() {
    if (rest_.empty()) refuse("its end");
    const auto* p = reinterpret_cast<const uint8_t*>(rest_.data());
    const Character c = character_at(p, p + rest_.size());
    if (c.code_point == stray_byte) refuse("a byte that is not UTF-8");
    rest_.remove_prefix(c.bytes);
    return c.code_point;
  }

  Part alternatives() {
    if (++depth_ > deepest_group) refuse("(");
    const bool ignored_case = ignores_case_;
    Part all{.kind = Part::Kind::alternatives};
    do all.inside.push_back(sequence());
    while (take("|"));
    ignores_case_ = ignored_case;
    depth_--;
    if (all.inside.size() == 1) return std::move(all.inside[0]);
    return all;
  }

  Part sequence() {
    Part all{.kind = Part::Kind::sequence};
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      if (take("(?i)")) {
        ignores_case_ = true;
        continue;
      }
      all.inside.push_back(quantified(atom()));
      check_no_folded_pair(all);
    }
    return all;
  }

  // Oniguruma finds `ß` by (?i:ss).
  void check_no_folded_pair(const Part& all) const {
    const size_t n = all.inside.size();
    if (!ignores_case_ || n < 2) return;
    const Part &a = all.inside[n - 2], &b = all.inside[n - 1];
    if (a.kind != Part::Kind::character || b.kind != Part::Kind::character || !a.ignores_case || !b.ignores_case)
      return;
    for (const CodePoints& left : a.set.ranges())
      for (const CodePoints& right : b.set.ranges())
        if (folding().pairs.contains({Folding::of(left.first), Folding::of(right.first)}))
          refuse("two letters that are one in some case, in (?i)");
  }

  Part quantified(Part atom) {
    for (;;) {
      const std::string_view before = rest_;
      uint32_t least = 0, most = no_most;
      bool is_interval = false;
      if (take("?"))
        most = 1;
      else if (take("+"))
        least = 1;
      else if (take("{")) {
        is_interval = interval(least, most);
        if (!is_interval) {
          rest_ = before;
          refuse("{");
        }
      } else if (!take("*")) {
        return atom;
      }
      if (atom.kind == Part::Kind::look_ahead || atom.kind == Part::Kind::look_behind) refuse("a look that repeats");
      Part repeat{.kind = Part::Kind::repeat, .least = least, .most = most};
      if (is_interval && (rest_.starts_with("+") || rest_.starts_with("?"))) refuse("{} before + or ?");
      repeat.is_lazy = take("?");
      repeat.is_possessive = !repeat.is_lazy && take("+");
      if (atom.kind != Part::Kind::character && atom.may_be_empty()) refuse("a repeat of what may be empty");
      repeat.inside.push_back(std::move(atom));
      atom = std::move(repeat);
    }
  }

  bool number(uint32_t& value) {
    size_t digits = 0;
    value = 0;
    for (; digits < rest_.size() && digits < 5 && rest_[digits] >= '0' && rest_[digits] <= '9'; digits++)
      value = value * 10 + static_cast<uint32_t>(rest_[digits] - '0');
    rest_.remove_prefix(digits);
    return digits > 0;
  }

  bool interval(uint32_t& least, uint32_t& most) {
    const bool has_least = number(least);
    if (take(",")) {
      if (!number(most)) {
        if (!has_least) return false;
        most = no_most;
      }
    } else {
      most = least;
      if (!has_least) return false;
    }
    return take("}") && least <= most && least <= 1000 && (most == no_most || most <= 1000);
  }

  Part atom() {
    const auto group = [&](Part::Kind kind, bool is_negated) {
      Part part{.kind = kind, .is_negated = is_negated};
      part.inside.push_back(alternatives());
      if (!take(")")) refuse("( without )");
      return part;
    };
    if (take("(?!")) return group(Part::Kind::look_ahead, true);
    if (take("(?=")) return group(Part::Kind::look_ahead, false);
    if (take("(?<!")) return group(Part::Kind::look_behind, true);
    if (take("(?<=")) return group(Part::Kind::look_behind, false);
    if (take("(?>")) return group(Part::Kind::atomic, false);
    if (take("(?i:")) {
      const bool before = ignores_case_;
      ignores_case_ = true;
      Part part = group(Part::Kind::sequence, false);
      ignores_case_ = before;
      return part;
    }
    if (take("(?:")) return group(Part::Kind::sequence, false);
    if (rest_.starts_with("(?") || rest_.starts_with("(*")) refuse(std::string(rest_.substr(0, 3)));
    if (take("(")) return group(Part::Kind::sequence, false);
    if (take("\\A")) return Part{.kind = Part::Kind::begins};
    if (take("\\z")) return Part{.kind = Part::Kind::ends};
    Part part{.kind = Part::Kind::character};
    if (take("[")) {
      part.set = one_of_class(1);
      part.ignores_case = ignores_case_;
      return part;
    }
    if (take(".")) {
      part.set = CharacterSet({{'\n', '\n'}}).complement();
      return part;
    }
    const char c = rest_.front();
    if (c == '^' || c == '$' || c == '*' || c == '+' || c == '?' || c == '{') refuse(std::string(1, c));
    bool is_literal = true;
    part.set = c == '\\' ? escape(is_literal) : CharacterSet({one(next())});
    if (ignores_case_ && is_literal) {
      part.set = folded(part.set);
      part.ignores_case = true;
    } else if (ignores_case_ && folded_matters(part.set)) {
      refuse("a category in (?i)");
    }
    return part;
  }

  static CodePoints one(char32_t c) { return {c, c}; }

  // \s, \d, \S and so on are the same in any case.
  bool folded_matters(const CharacterSet& set) const {
    return !set.contains('A') && set.contains('a') ? true : set.contains('A') && !set.contains('a');
  }

  static const Folding& folding() {
    static const Folding all;
    return all;
  }

  CharacterSet folded(const CharacterSet& set) const {
    std::vector<CodePoints> ranges = set.ranges();
    for (const CodePoints& range : set.ranges()) {
      if (range.last - range.first > 1000) refuse("a long range in (?i)");
      for (char32_t c = range.first; c <= range.last; c++) {
        if (folding().several.contains(c)) refuse("a letter that is several in another case, in (?i)");
        const auto found = folding().same.find(Folding::of(c));
        if (found != folding().same.end()) ranges.insert(ranges.end(), found->second.begin(), found->second.end());
      }
    }
    return CharacterSet(std::move(ranges));
  }

  CharacterSet one_of_class(int depth) {
    if (depth > deepest_group) refuse("[");
    const bool is_negated = take("^");
    CharacterSet literals, others;
    bool is_first = true;
    while (is_first || !rest_.starts_with("]")) {
      if (rest_.empty()) refuse("[ without ]");
      if (rest_.starts_with("&&") || rest_.starts_with("[:")) refuse(std::string(rest_.substr(0, 2)));
      if (is_first && rest_.starts_with("]")) refuse("[]");
      is_first = false;
      if (take("[")) {
        others.add(one_of_class(depth + 1));
        continue;
      }
      bool is_literal = true;
      CharacterSet member = rest_.front() == '\\' ? escape(is_literal) : CharacterSet({one(next())});
      if (!is_literal) {
        if (ignores_case_ && folded_matters(member)) refuse("a category in (?i)");
        others.add(member);
        if (rest_.starts_with("-") && !rest_.starts_with("-]")) refuse("a range from a class");
        continue;
      }
      if (rest_.starts_with("-") && !rest_.starts_with("-]")) {
        take("-");
        if (rest_.starts_with("[")) refuse("a range to a class");
        bool last_is_literal = true;
        const CharacterSet last = rest_.starts_with("\\") ? escape(last_is_literal) : CharacterSet({one(next())});
        const char32_t from = member.ranges()[0].first, to = last_is_literal ? last.ranges()[0].first : 0;
        if (!last_is_literal || to < from) refuse("a range without an end");
        member = CharacterSet({{from, to}});
      }
      literals.add(member);
    }
    take("]");
    if (ignores_case_) literals = folded(literals);
    others.add(literals);
    return is_negated ? others.complement() : others;
  }

  CharacterSet escape(bool& is_literal) {
    take("\\");
    if (rest_.empty()) refuse("\\");
    is_literal = false;
    if (take("s")) return CharacterSet::white_space();
    if (take("S")) return CharacterSet::white_space().complement();
    if (take("d")) return CharacterSet::of_category("Nd");
    if (take("D")) return CharacterSet::of_category("Nd").complement();
    if (take("w")) return word();
    if (take("W")) return word().complement();
    if (take("p{") || take("P{")) return category(all_[all_.size() - rest_.size() - 2] == 'P');
    is_literal = true;
    static const std::map<char, char32_t> controls = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'},
                                                      {'v', '\v'}, {'a', '\a'}, {'e', 0x1b}};
    if (const auto found = controls.find(rest_.front()); found != controls.end()) {
      rest_.remove_prefix(1);
      return CharacterSet({one(found->second)});
    }
    if (take("x{")) return CharacterSet({one(hexadecimal(8, "}"))});
    if (take("x")) return CharacterSet({one(hexadecimal(2, ""))});
    if (take("u")) return CharacterSet({one(hexadecimal(4, ""))});
    const char c = rest_.front();
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) refuse(std::string("\\") + c);
    return CharacterSet({one(next())});
  }

  char32_t hexadecimal(size_t most_digits, std::string_view behind) {
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < most_digits && digits < rest_.size(); digits++) {
      const char c = rest_[digits];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
    }
    rest_.remove_prefix(digits);
    if (digits == 0 || (behind.empty() && digits < most_digits) || value >= num_code_points || !take(behind) ||
        (behind.empty() && most_digits == 2 && value >= 0x80))
      refuse("\\x or \\u");
    return value;
  }

  CharacterSet category(bool is_negated) {
    if (take("^")) is_negated = !is_negated;
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) refuse("\\p{");
    std::string name(rest_.substr(0, end));
    static const std::map<std::string, std::string> long_names = {
        {"Letter", "L"}, {"Number", "N"},    {"Mark", "M"}, {"Punctuation", "P"},
        {"Symbol", "S"}, {"Separator", "Z"}, {"Other", "C"}};
    if (const auto found = long_names.find(name); found != long_names.end()) name = found->second;
    CharacterSet set = name == "Han" ? han() : CharacterSet::of_category(name);
    if (set.ranges().empty()) refuse("\\p{" + name + "}");
    rest_.remove_prefix(end + 1);
    return is_negated ? set.complement() : set;
  }

  // Oniguruma takes Latin-1's raised digits and fractions for parts of words, and joiners not.
  static CharacterSet word() {
    CharacterSet set = CharacterSet::word().complement();
    set.add(CharacterSet({{0x200c, 0x200d}}));
    set = set.complement();
    set.add(CharacterSet({{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}}));
    return set;
  }

  // Scripts.txt of Unicode 16.
  static CharacterSet han() {
    return CharacterSet({{0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},
                         {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},
                         {0x4e00, 0x9fff},   {0xf900, 0xfa6d},   {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3},
                         {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739}, {0x2b740, 0x2b81d},
                         {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d},
                         {0x30000, 0x3134a}, {0x31350, 0x323af}});
  }

  const std::string_view all_;
  std::string_view rest_;
  const std::string& where_;
  bool ignores_case_ = false;
  int depth_ = 0;
};

}  // namespace

// Makes the program of a pattern, from its end to its beginning, so that each node knows what follows it.
class PatternCompiler {
 public:
  PatternCompiler(TextPattern& pattern, const std::string& where) : to_(pattern), where_(where) {}

  void compile(const Part& whole) {
    const int accept = add({.kind = TextPattern::Kind::accept});
    std::vector<int> ways;
    if (const Part* parts = &whole; parts->kind == Part::Kind::alternatives)
      for (const Part& way : parts->inside) ways.push_back(node_of(way, accept));
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

  int node_of(const Part& part, int next) {
    using Kind = TextPattern::Kind;
    switch (part.kind) {
      case Part::Kind::character:
        if (part.is_one_literal())
          return add({.kind = Kind::literal, .next = next, .literal = part.set.ranges()[0].first});
        return add({.kind = Kind::one_of, .next = next, .set = bit_of(part.set)});
      case Part::Kind::sequence:
        for (auto inside = part.inside.rbegin(); inside != part.inside.rend(); ++inside) next = node_of(*inside, next);
        return next;
      case Part::Kind::alternatives: {
        int all = node_of(part.inside.back(), next);
        for (auto way = part.inside.rbegin() + 1; way != part.inside.rend(); ++way)
          all = add({.kind = Kind::choice, .next = node_of(*way, next), .other = all});
        return all;
      }
      case Part::Kind::repeat: return repeat(part, next);
      case Part::Kind::look_ahead:
      case Part::Kind::atomic: {
        const int inside = node_of(part.inside[0], add({.kind = Kind::accept}));
        return add({.kind = part.kind == Part::Kind::atomic ? Kind::atomic : Kind::look_ahead,
                    .is_negated = part.is_negated,
                    .next = next,
                    .other = inside});
      }
      case Part::Kind::look_behind: {
        to_.looks_back_ = true;
        const uint32_t length = length_of(part.inside[0]);
        const int inside = node_of(part.inside[0], add({.kind = Kind::accept}));
        return add(
            {.kind = Kind::look_behind, .is_negated = part.is_negated, .next = next, .other = inside, .least = length});
      }
      case Part::Kind::begins: to_.looks_back_ = true; return add({.kind = Kind::begins, .next = next});
      case Part::Kind::ends: return add({.kind = Kind::ends, .next = next});
    }
    return next;
  }

  uint32_t length_of(const Part& part) const {
    if (part.kind == Part::Kind::character) return 1;
    uint32_t length = 0;
    if (part.kind == Part::Kind::sequence)
      for (const Part& inside : part.inside) length += length_of(inside);
    else if (part.kind == Part::Kind::alternatives) {
      length = length_of(part.inside[0]);
      for (const Part& inside : part.inside)
        CHECK(length_of(inside) == length, "{}: the pattern looks back by alternatives of different lengths", where_);
    } else {
      FAIL("{}: the pattern looks back by more than characters and groups, which is not known here", where_);
    }
    return length;
  }

  int repeat(const Part& part, int next) {
    using Kind = TextPattern::Kind;
    const Part& inside = part.inside[0];
    if (inside.kind == Part::Kind::character && !part.is_lazy)
      return add({.kind = Kind::run,
                  .gives_back = !part.is_possessive,
                  .next = next,
                  .set = bit_of(inside.set),
                  .least = part.least,
                  .most = part.most});
    if (part.is_possessive) {
      Part plain = part;
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

  // Writes the sets of each character into pages, of which equal ones are kept once.
  void tabulate() {
    std::vector<std::pair<char32_t, uint64_t>> changes;  // where a set begins or ends
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

  // Collects with which characters the rest of a match may begin. What looks is taken for nothing.
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

  // A run need not end earlier where what follows begins with a character that is not in it.
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
  std::vector<uint64_t> combinations_;  // of sets that characters are in
};

TextPattern::TextPattern(std::string_view pattern, const std::string& where) {
  PatternCompiler(*this, where).compile(PatternParser(pattern, where).read());
}

TextPattern TextPattern::of_text(std::string_view text) {
  TextPattern pattern;
  pattern.text_ = text;
  return pattern;
}

// Returns where the match of a node and all that follow it ends; null if there is none.
const uint8_t* TextPattern::match(int at, const uint8_t* begin, const uint8_t* p, const uint8_t* end,
                                  Scratch& scratch) const {
  const size_t outer = scratch.choices.size();
  for (;;) {
    const Node& node = nodes_[static_cast<size_t>(at)];
    bool goes_on = true;
    at = node.next;
    switch (node.kind) {
      case Kind::accept: scratch.choices.resize(outer); return p;
      case Kind::literal:
      case Kind::one_of: {
        if (p == end) {
          scratch.saw_end = true;
          goes_on = false;
          break;
        }
        const Character c = character_at(p, end);
        goes_on = node.kind == Kind::literal ? c.code_point == node.literal : (sets_of(c.code_point) & node.set) != 0;
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
        goes_on = count >= node.least;
        if (goes_on && node.gives_back && p > lowest) scratch.choices.push_back({node.next, p, lowest});
        break;
      }
      case Kind::choice: scratch.choices.push_back({node.other, p, nullptr}); break;
      case Kind::atomic:
      case Kind::look_ahead: {
        const uint8_t* inside = match(node.other, begin, p, end, scratch);
        goes_on = (inside != nullptr) != node.is_negated;
        if (node.kind == Kind::atomic && goes_on) p = inside;
        break;
      }
      case Kind::look_behind: {
        const uint8_t* from = p;
        uint32_t left = node.least;
        for (; left > 0 && from > begin; left--) from -= character_before(begin, from).bytes;
        goes_on = (left == 0 && match(node.other, begin, from, p, scratch) != nullptr) != node.is_negated;
        break;
      }
      case Kind::begins: goes_on = p == begin; break;
      case Kind::ends:
        scratch.saw_end = scratch.saw_end || p == end;
        goes_on = p == end;
        break;
    }
    if (goes_on) continue;
    if (scratch.choices.size() == outer) return nullptr;
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
    match_any(begin, p, end, scratch);
    if (scratch.saw_end) break;
    p += character_at(p, end).bytes;
  }
  return static_cast<size_t>(p - begin);
}

}  // namespace megalith
