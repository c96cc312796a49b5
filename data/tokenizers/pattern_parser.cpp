#include "data/tokenizers/pattern_parser.h"

#include <utf8proc.h>

#include <map>
#include <memory>
#include <set>

#include "kernels/system/check.h"

namespace megalith {

namespace {

constexpr int deepest_group = 100;

// Unicode's case folding: classes of characters that fold to the same one; for foldings to several characters (ß to
// ss), the first two.
struct Folding {
  std::map<char32_t, std::vector<CodePoints>> same;  // by the folded character
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

  PatternPart read() {
    PatternPart part = alternatives();
    if (!rest_.empty()) refuse(")");
    return part;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    FAIL("{}: the pattern {} has `{}` at its byte {}, which is not supported", where_, all_, what,
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

  PatternPart alternatives() {
    if (++depth_ > deepest_group) refuse("(");
    const bool ignored_case = ignores_case_;
    PatternPart all{.kind = PatternPart::Kind::alternatives};
    do all.inside.push_back(sequence());
    while (take("|"));
    ignores_case_ = ignored_case;
    depth_--;
    if (all.inside.size() == 1) return std::move(all.inside[0]);
    return all;
  }

  PatternPart sequence() {
    PatternPart all{.kind = PatternPart::Kind::sequence};
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

  // Oniguruma also matches `ß` with (?i:ss). Such pairs are refused.
  void check_no_folded_pair(const PatternPart& all) const {
    const size_t n = all.inside.size();
    if (!ignores_case_ || n < 2) return;
    const PatternPart &a = all.inside[n - 2], &b = all.inside[n - 1];
    if (a.kind != PatternPart::Kind::character || b.kind != PatternPart::Kind::character || !a.ignores_case ||
        !b.ignores_case)
      return;
    for (const CodePoints& left : a.set.ranges())
      for (const CodePoints& right : b.set.ranges())
        if (folding().pairs.contains({Folding::of(left.first), Folding::of(right.first)}))
          refuse("two letters that fold to one, in (?i)");
  }

  PatternPart quantified(PatternPart atom) {
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
      if (atom.kind == PatternPart::Kind::look_ahead || atom.kind == PatternPart::Kind::look_behind)
        refuse("a look-around that repeats");
      PatternPart repeat{.kind = PatternPart::Kind::repeat, .least = least, .most = most};
      if (is_interval && (rest_.starts_with("+") || rest_.starts_with("?"))) refuse("{} before + or ?");
      repeat.is_lazy = take("?");
      repeat.is_possessive = !repeat.is_lazy && take("+");
      if (atom.kind != PatternPart::Kind::character && atom.may_be_empty())
        refuse("a repetition of an expression that may be empty");
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

  PatternPart atom() {
    const auto group = [&](PatternPart::Kind kind, bool is_negated) {
      PatternPart part{.kind = kind, .is_negated = is_negated};
      part.inside.push_back(alternatives());
      if (!take(")")) refuse("( without )");
      return part;
    };
    if (take("(?!")) return group(PatternPart::Kind::look_ahead, true);
    if (take("(?=")) return group(PatternPart::Kind::look_ahead, false);
    if (take("(?<!")) return group(PatternPart::Kind::look_behind, true);
    if (take("(?<=")) return group(PatternPart::Kind::look_behind, false);
    if (take("(?>")) return group(PatternPart::Kind::atomic, false);
    if (take("(?i:")) {
      const bool before = ignores_case_;
      ignores_case_ = true;
      PatternPart part = group(PatternPart::Kind::sequence, false);
      ignores_case_ = before;
      return part;
    }
    if (take("(?:")) return group(PatternPart::Kind::sequence, false);
    if (rest_.starts_with("(?") || rest_.starts_with("(*")) refuse(std::string(rest_.substr(0, 3)));
    if (take("(")) return group(PatternPart::Kind::sequence, false);
    if (take("\\A")) return PatternPart{.kind = PatternPart::Kind::begins};
    if (take("\\z")) return PatternPart{.kind = PatternPart::Kind::ends};
    PatternPart part{.kind = PatternPart::Kind::character};
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

  // \s, \d, \S and so on do not depend on the case.
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
        if (folding().several.contains(c)) refuse("a letter that folds to several, in (?i)");
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

  // Oniguruma's word characters include Latin-1's raised digits and fractions, and exclude joiners.
  static CharacterSet word() {
    CharacterSet set = CharacterSet::word().complement();
    set.add(CharacterSet({{0x200c, 0x200d}}));
    set = set.complement();
    set.add(CharacterSet({{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}}));
    return set;
  }

  // From Scripts.txt of Unicode 16.
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

PatternPart parse_pattern(std::string_view pattern, const std::string& where) {
  return PatternParser(pattern, where).read();
}

}  // namespace megalith
